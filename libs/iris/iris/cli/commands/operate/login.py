"""`iris login`: sign in at the gateway's OpenID Connect issuer, and keep the token in a context."""

from __future__ import annotations

from urllib.parse import urlsplit

import click

from iris.cli.output.tables import Row
from iris.cli.parsing.command import CliCommand
from iris.cli.parsing.options import connected
from iris.client.client import Client
from iris.client.http.contexts import Context, Contexts, contexts_path, load_contexts, save_contexts
from iris.client.http.device_login import DeviceCode, sign_in
from iris.client.problems import InvalidOption


@click.command(cls=CliCommand)
@connected
def login(client: Client) -> None:
    """Sign in with a browser, here or on another device; the token is kept in the gateway's
    context.
    """
    url = client.transport.address.url
    found: Row = client.get("/v1/meta", dict)
    terms = found.get("login")
    if not terms:
        raise InvalidOption(
            f"{url} names no issuer to sign in at ([gateway] oidc_client); ask its admin for a token"
        )
    token = sign_in(terms["issuer"], terms["client"], tell)
    path = contexts_path()
    known = load_contexts(path)
    name = next((name for name, one in known.known.items() if one.url == url), urlsplit(url).netloc)
    save_contexts(path, Contexts(known.current or name, {**known.known, name: Context(url, token)}))
    click.echo(f"signed in; the token is kept as context {name} in {path}", err=True)


def tell(code: DeviceCode) -> None:
    """Print what to do."""
    where = code.verification_uri_complete or code.verification_uri
    click.echo(f"open {where} in a browser and confirm the code {code.user_code}", err=True)
