"""What requests are made of."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, StringConstraints

from headwise.studio.limits import MOST_CHARACTERS

Name = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Text = Annotated[str, StringConstraints(max_length=MOST_CHARACTERS)]
BINARY = "application/octet-stream"


class Request(BaseModel):
    """A body in JSON; keys that nobody knows are refused."""

    model_config = ConfigDict(extra="forbid")
