"""Types of request fields and responses, and the base class of request bodies."""

from __future__ import annotations

from typing import Annotated

from fastapi import Header
from pydantic import BaseModel, ConfigDict, StringConstraints

from headwise.studio.limits import MAX_CHARACTERS

Name = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Text = Annotated[str, StringConstraints(max_length=MAX_CHARACTERS)]
# Under which a page can ask how far its request is: random, so that no other request has it.
ProgressId = Annotated[str, Header(alias="x-progress", max_length=64)]
BINARY = "application/octet-stream"
JSON = "application/json"


class RequestBody(BaseModel):
    """A JSON body; unknown keys are refused."""

    model_config = ConfigDict(extra="forbid")
