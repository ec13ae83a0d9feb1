"""A model host: one loaded model and all that belongs to it, for the server and for programs that embed it."""
