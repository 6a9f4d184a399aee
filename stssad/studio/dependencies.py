"""What addresses share: the shelf of the application, and the run that is asked for."""

from pathlib import Path
from typing import Annotated

from fastapi import Depends, Request

from .leases import Leases
from .shelf import Shelf


async def get_shelf(request: Request) -> Shelf:
    shelf: Shelf = request.app.state.shelf
    return shelf


async def get_leases(request: Request) -> Leases:
    leases: Leases = request.app.state.leases
    return leases


ShelfOfApp = Annotated[Shelf, Depends(get_shelf)]
LeasesOfApp = Annotated[Leases, Depends(get_leases)]


def find_run(run: str, shelf: ShelfOfApp) -> Path:
    """The folder of the run that an address names."""
    return shelf.existing(run)


RunPath = Annotated[Path, Depends(find_run)]
