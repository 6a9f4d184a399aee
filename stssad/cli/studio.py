"""`stssad studio`: a local page to browse runs, label images and refit."""

import secrets
import socket
import threading
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .console import make_console

if TYPE_CHECKING:
    from ..studio.shelf import Shelf


def command(
    folder: Annotated[
        Path, typer.Argument(help="Folder of the runs; created if it doesn't exist.")
    ] = Path("runs"),
    images: Annotated[
        list[Path] | None,
        typer.Option(
            help="Folder whose images may be shown and fitted; may be repeated. The current "
            "folder by default."
        ),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0: any free one.")] = 0,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open the page in the browser.")
    ] = True,
) -> None:
    """Open the local page: browse runs, label images, refit. Only this machine can reach it."""
    check_installed()
    from ..runs.folder import RunFolder
    from ..studio.shelf import Shelf

    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"{str(folder)!r} is a file; give the folder of the runs")
    if RunFolder(folder).is_run:  # a run itself: its folder is meant
        folder = folder.absolute().parent
    for images_folder in images or []:
        if not images_folder.is_dir():
            raise NotADirectoryError(f"no such folder: {str(images_folder)!r}; check --images")
    folder.mkdir(parents=True, exist_ok=True)
    shelf = Shelf(folder.resolve(), tuple(x.resolve() for x in images or [Path.cwd()]))
    serve(shelf, port, browser)


def check_installed() -> None:
    try:
        import uvicorn  # noqa: F401

        from ..studio import app  # noqa: F401
    except ImportError as error:
        raise ImportError(
            f"the studio needs the package {error.name}, which isn't installed; install it with: "
            "pip install 'stssad[studio]'"
        ) from None


def serve(shelf: "Shelf", port: int, browser: bool) -> None:
    """Until Ctrl-C."""
    import uvicorn

    from ..studio.app import create_app

    with bind_socket(port) as listening:
        number, token = listening.getsockname()[1], secrets.token_urlsafe(24)
        hosts = {f"127.0.0.1:{number}", f"localhost:{number}"}
        address = f"http://127.0.0.1:{number}/?token={token}"
        make_console().print(
            f"studio of {shelf.root}: {address}\n(Ctrl-C stops it; running fits continue)"
        )
        if browser:
            threading.Timer(0.5, webbrowser.open, [address]).start()
        config = uvicorn.Config(
            create_app(shelf, token, hosts),
            log_level="warning",
            limit_concurrency=64,
            timeout_keep_alive=5,
            lifespan="off",
            server_header=False,
        )
        uvicorn.Server(config).run(sockets=[listening])


def bind_socket(port: int) -> socket.socket:
    """On this machine's own address, which no other machine reaches."""
    # With its protocol: asyncio then answers at once, and waits for no packet to fill.
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind(("127.0.0.1", port))
    except OSError as error:
        listening.close()
        raise OSError(
            f"port {port} isn't available ({error.strerror}); give another --port"
        ) from None
    return listening
