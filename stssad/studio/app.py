"""The studio's application: its addresses, its errors, and what stands before them."""

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from starlette.middleware.trustedhost import TrustedHostMiddleware

from . import changes, downloads, fits, reviews, views
from .guard import PATIENCE, Guard
from .leases import Leases
from .shelf import NotHereError, Shelf


def create_app(
    shelf: Shelf, token: str, hosts: set[str], patience: float = PATIENCE
) -> TrustedHostMiddleware:
    """`hosts`: with the port, as a browser names them."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    app.state.shelf, app.state.leases = shelf, Leases()
    app.add_exception_handler(ValueError, explain)
    app.add_exception_handler(OSError, explain)
    for module in (views, changes, reviews, downloads, fits):
        app.include_router(module.router)
    guard = Guard(app, token, {f"http://{host}" for host in hosts}, patience)
    # A name of somebody else's that was bound to 127.0.0.1 is another host.
    names = sorted({host.partition(":")[0] for host in hosts})
    return TrustedHostMiddleware(guard, names, www_redirect=False)


async def explain(request: Request, error: Exception) -> Response:
    """An error that a user can mend, as a sentence."""
    status = 404 if isinstance(error, NotHereError | FileNotFoundError) else 400
    return JSONResponse({"error": str(error)}, status)
