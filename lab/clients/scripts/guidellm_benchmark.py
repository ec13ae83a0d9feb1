"""guidellm: a benchmark of one conversation. `guidellm_benchmark.py URL QUESTION...`.

By itself, guidellm offers tools only in the turns that must call one. Here `extras` puts them into every request, as
agents do, so that the header stays. The exit code is 1 if a request failed by guidellm's own count.
"""

import json
import subprocess
import sys
from pathlib import Path

from notes import NOTES, READ_NOTE

url, *questions = sys.argv[1:]
conversation = {f"prompt_{number}": question for number, question in enumerate(questions)}
for number, question in enumerate(questions):
    if "read_note" in question:
        conversation |= {f"tools_{number}": json.dumps([READ_NOTE]), f"tool_response_{number}": NOTES["todo.txt"]}
data, report = Path("conversation.jsonl"), Path("report.json")
data.write_text(json.dumps(conversation))
backend = {"kind": "openai_http", "target": url, "extras": {"body": {"tools": [READ_NOTE]}}}
subprocess.run(
    [
        *(str(Path(sys.executable).parent / "guidellm"), "run", "--backend", json.dumps(backend)),
        *("--profile", "kind=synchronous", "--data", f"kind=json_file,path={data}"),
        *("--output", f"kind=json,path={report}"),
    ],
    check=True,
)
(benchmark,) = json.loads(report.read_text())["benchmarks"]
totals = benchmark["metrics"]["request_totals"]
sys.exit(0 if totals["successful"] == totals["total"] else f"requests: {totals}")
