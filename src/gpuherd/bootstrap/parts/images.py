"""What the account keeps for images: registry credentials and templates."""

from __future__ import annotations

from gpuherd.bootstrap.parts.shared import Shared
from gpuherd.bootstrap.ports import Ports
from gpuherd.entrypoints.plane import ImageServices
from gpuherd.usecases.images.registry import ManageRegistry
from gpuherd.usecases.images.templates import ManageTemplates


def build_images(ports: Ports, shared: Shared) -> ImageServices:
    """Return what the outside may ask about them."""
    audit, clock, catalogue = ports.stores.audit, ports.clock, shared.browsed_catalogue
    cloud = ports.browse_cloud or ports.cloud
    return ImageServices(
        registry=ManageRegistry(ports.credentials, catalogue, audit, clock),
        templates=ManageTemplates(ports.template_editor, cloud, catalogue, audit, clock),
    )
