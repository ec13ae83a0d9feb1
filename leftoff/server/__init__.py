"""The HTTP server: one folder per dialect over model hosts. HTTP is known here and nowhere below."""
