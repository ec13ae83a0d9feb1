"""Models by name: what a reference means (`reference.py`), by the catalogue too (`catalogue.py`), and files of the
Hugging Face hub, which are listed and found again (`files.py`) and downloaded once (`download.py`).
"""
