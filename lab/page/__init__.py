"""Tools for the page that the server shows: its libraries, its pictures, and what it costs the engine."""
