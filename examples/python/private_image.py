"""Let Novita keep a login to your registry, make a template of a private image, and show both.

GPUHERD_API_KEY=... REGISTRY_PASSWORD=... python3 private_image.py NAME USER IMAGE [--remove]
"""

from __future__ import annotations

import argparse
import os
import sys

from gpuherd.client.client_errors import GpuherdError
from gpuherd.client.sync_client import Gpuherd


def main() -> None:
    parser = argparse.ArgumentParser(description="Keep a login and a template for a private image.")
    parser.add_argument("name", help="of the login and of the template")
    parser.add_argument("user")
    parser.add_argument("image")
    parser.add_argument("--remove", action="store_true", help="and remove both again")
    options = parser.parse_args()

    with Gpuherd() as herd:
        logins = {it.name: it for it in herd.registry.list()}
        if options.name not in logins:
            # A password on the command line would be in the list of processes.
            password = os.environ["REGISTRY_PASSWORD"]
            logins[options.name] = herd.registry.create(options.name, options.user, password)
        login = logins[options.name]
        print(f"login: {login.username} ({login.name})")
        templates = {it.name: it for it in herd.templates()}
        if options.name in templates:
            template = herd.change_template(templates[options.name], image_url=options.image)
        else:
            template = herd.create_template(options.name, options.image, registry_auth_id=login.id)
        print(f"template: {template.image_url}, pulled with {login.name}")
        if options.remove:
            herd.delete_template(template)
            herd.registry.delete(login)
            print("removed")


if __name__ == "__main__":
    try:
        main()
    except GpuherdError as error:
        sys.exit(str(error))
