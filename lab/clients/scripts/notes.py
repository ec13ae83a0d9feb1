"""What the tool `read_note` of the scripts reads. No imports: each script runs in an environment of its own."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))

from notes_mcp import NOTES, TOOLS

READ_NOTE = {
    "type": "function",
    "function": {
        "name": TOOLS[0]["name"],
        "description": TOOLS[0]["description"],
        "parameters": TOOLS[0]["inputSchema"],
    },
}

__all__ = ["NOTES", "READ_NOTE"]
