"""What the OpenAPI document says of requests, made from the models that read them."""

from __future__ import annotations

from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from gpuherd.entrypoints.schemas.request_model import RequestModel

Json = dict[str, Any]
REFERENCE = "#/components/schemas/{model}"


class RequestSchema(GenerateJsonSchema):
    """Leaves out what tells nothing: titles that repeat the name, and null as a default."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        found = super().default_schema(schema)
        if found.get("default", ...) is None:
            del found["default"]
        return found


def takes(model: type[RequestModel], *, required: bool = True) -> Json:
    """Return the `openapi_extra` of a route with this body; the document moves it among its components."""
    schema = model.model_json_schema(ref_template=REFERENCE, schema_generator=RequestSchema)
    return {"requestBody": {"required": required, "content": {"application/json": {"schema": schema}}}}


def move_to_components(operation: Json, schemas: Json) -> None:
    """Leave a reference in the place of a body's schema."""
    for media in operation.get("requestBody", {}).get("content", {}).values():
        schema = media["schema"]
        schemas.update(schema.pop("$defs", {}))
        schemas[schema["title"]] = schema
        media["schema"] = {"$ref": REFERENCE.format(model=schema["title"])}
