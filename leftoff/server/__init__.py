"""The wire: one file per dialect, over one service. HTTP is known here and nowhere below."""
