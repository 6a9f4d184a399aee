"""`stssad studio`: a local page to look at runs, review images and teach a run."""

import secrets
import socket
import threading
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from .console import make_console


def command(
    folder: Annotated[
        Path, typer.Argument(help="Folder of the runs; it is made if it isn't there.")
    ] = Path("runs"),
    images: Annotated[
        list[Path] | None,
        typer.Option(help="Folder whose images may be shown and fitted; may be repeated. Else the "
                     "folder in which the command is run."),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any that is free.")] = 0,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open the page in the browser.")
    ] = True,
) -> None:  # fmt: skip
    """A page of this machine's own: look, decide, teach it. Nobody else can open it."""
    try:
        import uvicorn

        from ..studio.app import create_app
    except ImportError as error:
        raise ImportError(
            f"the studio needs a package that isn't here ({error.name}); install it with: pip "
            "install 'stssad[studio]'"
        ) from None
    from ..studio.shelf import Shelf

    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"{str(folder)!r} is a file; give the folder of the runs")
    if (folder / "environment.json").is_file():  # a run itself: its folder is meant
        folder = folder.absolute().parent
    for each in images or []:
        if not each.is_dir():
            raise NotADirectoryError(f"no such folder: {str(each)!r}; check --images")
    folder.mkdir(parents=True, exist_ok=True)
    shelf = Shelf(folder.resolve(), tuple(x.resolve() for x in images or [Path.cwd()]))
    with bound(port) as listening:
        number, token = listening.getsockname()[1], secrets.token_urlsafe(24)
        hosts = {f"127.0.0.1:{number}", f"localhost:{number}"}
        app = create_app(shelf, token, hosts)
        address = f"http://127.0.0.1:{number}/?token={token}"
        make_console().print(f"studio of {folder}: {address}\n(Ctrl-C stops it; fits go on)")
        if browser:
            threading.Timer(0.5, webbrowser.open, [address]).start()
        settings = uvicorn.Config(
            app, log_level="warning", limit_concurrency=64, timeout_keep_alive=5, lifespan="off",
            server_header=False,
        )  # fmt: skip
        uvicorn.Server(settings).run(sockets=[listening])


def bound(port: int) -> socket.socket:
    """Of this machine alone."""
    # With its protocol: asyncio then answers at once, and waits for no packet to fill.
    found = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind(("127.0.0.1", port))
    except OSError as error:
        found.close()
        raise OSError(f"port {port} can't be had ({error.strerror}); give another --port") from None
    return found
