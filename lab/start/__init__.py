"""How people begin: the image of deploy/Dockerfile built and played, and the time to a first token in bare systems."""
