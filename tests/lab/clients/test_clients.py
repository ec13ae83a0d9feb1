"""`python -m lab.clients`: which clients it plays. That they are played is what `make clients` is for."""

import pytest

from lab.clients.__main__ import main


@pytest.mark.parametrize("words", [["nobody"], ["--without", "nobody"]])
def test_an_unknown_client_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        main(words)
    assert refused.value.code == 2
    assert "there is no client 'nobody'" in capsys.readouterr().err
