"""The command line as a user runs it, in this process: without the seconds that imports take."""

import io
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from unittest.mock import patch

from stssad.cli import main


def run(*words: object, input: str = "") -> subprocess.CompletedProcess[str]:
    out, err, arguments = io.StringIO(), io.StringIO(), ["stssad", *map(str, words)]
    code: object = 0
    with (
        redirect_stdout(out),
        redirect_stderr(err),
        patch.object(sys, "argv", arguments),
        patch.object(sys, "stdin", io.StringIO(input)),
    ):
        try:
            main()
        except SystemExit as stop:
            code = stop.code
    return subprocess.CompletedProcess(
        arguments, int(str(code or 0)), out.getvalue(), err.getvalue()
    )
