"""Plays the clients that people use against a server: `python -m lab.clients`, or `make clients`.

`catalog.py` has one entry for each client. `install.py` installs it, `play.py` runs it through the proxy in `tap.py`
and checks what was reused of every prompt, `report.py` writes docs/clients.md. `record.py` turns what the clients sent
into recordings without their vendors' texts, and `replay.py` plays those in the tests, where no client is installed.
"""
