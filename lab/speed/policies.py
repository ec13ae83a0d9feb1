"""Eviction policies side by side: sixteen chats over one header of 8,000 tokens, with less and less RAM.

The sizes are those of a 35B hybrid model, scaled down; nothing is computed. Policies that weigh ages by the
clock may differ a little from run to run.
"""

import argparse
import json

from rich.console import Console
from rich.table import Table

from lab.simulate.policies import POLICIES
from tests.cache.test_cache_sharing import Office
from tests.cache.trees import UNLIMITED

SHARES = (0.25, 0.05, 0.03, 0.02)


def computed(policy: str, budget_bytes: int) -> int:
    """Prompt tokens that are read in all."""
    office = Office(budget_bytes, POLICIES[policy]())
    office.work()
    return sum(report.computed for report in office.reports)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    roomy = Office(UNLIMITED)
    roomy.work()
    whole = roomy.cache.ram.budget.used_bytes
    rows = {policy: [computed(policy, int(share * whole)) for share in SHARES] for policy in POLICIES}
    if arguments.json:
        print(json.dumps({"shares": SHARES, "unlimited": sum(r.computed for r in roomy.reports), "computed": rows}))
        return
    table = Table("prompt tokens computed at", *(f"{share:.0%} of the RAM" for share in SHARES))
    for policy, figures in rows.items():
        table.add_row(policy, *(f"{figure:,}" for figure in figures))
    Console().print(table)


if __name__ == "__main__":
    main()
