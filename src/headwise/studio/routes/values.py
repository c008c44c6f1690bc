"""Types of request fields and the base class of request bodies."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, StringConstraints

from headwise.studio.limits import MAX_CHARACTERS

Name = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Text = Annotated[str, StringConstraints(max_length=MAX_CHARACTERS)]
BINARY = "application/octet-stream"


class RequestBody(BaseModel):
    """A JSON body; unknown keys are refused."""

    model_config = ConfigDict(extra="forbid")
