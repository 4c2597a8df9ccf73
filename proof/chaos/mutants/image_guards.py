"""The guards of templates and registry credentials: no password leaks, and nothing of others is lost."""

from __future__ import annotations

from proof.chaos.mutants.safeguard import Safeguard

IMAGES_API = "tests/entrypoints/http/routes/cloud/test_images.py"
IMAGES_WIRE = "tests/contracts/cloud/test_images_on_the_wire.py"
_REGISTRY, _TEMPLATES = "usecases/images/registry.py", "usecases/images/templates.py"
_WIRE = "adapters/novita/images.py"

IMAGES = (
    Safeguard(
        "a registry password that an answer quotes is not shown",
        _WIRE,
        "        secrets = CallSecrets(credentials=(order.password,))\n",
        "        secrets = NO_SECRETS\n",
        (f"{IMAGES_WIRE}::test_an_error_that_quotes_a_secret_is_shown_without_it",),
    ),
    Safeguard(
        "what a changed template holds is not shown",
        _WIRE,
        '{"template": row}, ResourceKind.TEMPLATE, _secrets_of(row))\n\n    async def delete',
        '{"template": row}, ResourceKind.TEMPLATE)\n\n    async def delete',
        (f"{IMAGES_WIRE}::test_what_a_template_holds_is_not_quoted_when_it_is_changed",),
    ),
    Safeguard(
        "no hash from which a registry password could be guessed",
        "usecases/access/claim_request.py",
        '("envs", "value", "password")',
        '("envs", "value")',
        (f"{IMAGES_API}::test_no_password_and_no_variable_is_found_anywhere",),
    ),
    Safeguard(
        "a change of a template leaves what it does not say",
        _WIRE,
        "        row = {**row, **_said(draft)}\n",
        '        row = {"Id": template_id, **_said(draft)}\n',
        (f"{IMAGES_WIRE}::test_a_change_of_a_template_says_the_rest_anew",),
    ),
    Safeguard(
        "a template of another id is not overwritten",
        _WIRE,
        ' or text(row, "Id") != template_id:\n',
        ":\n",
        (f"{IMAGES_WIRE}::test_a_template_of_another_id_is_not_changed",),
    ),
    Safeguard(
        "a name of a registry credential is given once",
        _REGISTRY,
        "        if (there := await self._named(order.name)) is not None:\n",
        "        if (there := None) is not None:\n",
        (f"{IMAGES_API}::test_a_credential_is_kept_by_the_cloud_and_pulls_at_once",),
    ),
    Safeguard(
        "a removal of a registry credential without an answer is not told as done",
        _REGISTRY,
        "            if any(it.auth_id == auth_id for it in await self.credentials.list_credentials()):\n"
        "                raise\n",
        "            pass\n",
        (f"{IMAGES_API}::test_whether_a_lost_removal_has_happened_is_looked_up",),
    ),
    Safeguard(
        "a removal of a template without an answer is not told as done",
        _TEMPLATES,
        "            if any(it.template_id == template_id for it in await self.cloud.list_templates()):\n"
        "                raise\n",
        "            pass\n",
        (f"{IMAGES_API}::test_whether_a_lost_removal_has_happened_is_looked_up",),
    ),
    Safeguard(
        "who makes a registry credential is on record before the cloud is asked",
        _REGISTRY,
        "        await self.audit.append(record)\n",
        "",
        (f"{IMAGES_API}::test_who_asked_is_on_record_before_the_cloud_is_asked",),
    ),
)
