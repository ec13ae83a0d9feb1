"""The HTTP server: one folder per dialect over one `Service`. HTTP is known here and nowhere below."""
