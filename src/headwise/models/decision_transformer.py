"""Decision Transformer (Chen et al. 2021, "Decision Transformer: Reinforcement Learning via Sequence Modeling").

An episode is a sequence of triples: the return that is still to come, the observation, the action. A causal Transformer
(that of GPT-2) reads them and predicts the action at the token of the observation; asked for a high return, it acts as
in the episodes that had one. Reference: the released code, and transformers' DecisionTransformerModel.

`base` is the form for states of numbers and continuous actions (Gym in the paper): linear embeddings, one vector for
each time step that is added to its three tokens, LayerNorm. `atari` is the form for frames and discrete actions: a
convolutional encoder, tanh after each embedding, learned positions of tokens beside those of time steps. Either takes
frames or states, continuous or discrete actions.

DISCREPANCY: the released code removes the position embedding of GPT-2; transformers' has kept a table of 1,024
positions, of which only the first vector is added, to every token, and a table of one word that nothing reads. They are
131,200 of its 1,256,854 parameters; the others are the 1,125,654 here. Heads for the next state and the next return
exist in the released code; the paper trains the actions alone (`task.state_weight`, `task.return_weight`). The
LayerNorm of the embeddings has PyTorch's epsilon, 1e-5, whatever `norm.eps` says, there as here.

Letters: B rows, T time steps, C width, D numbers of a state, A actions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import torch
from pydantic import Field, field_validator
from torch import Tensor, nn

from headwise.blocks.feedforward import Activation
from headwise.blocks.frames import FrameEncoder
from headwise.blocks.positions.absolute import NoPositionsConfig
from headwise.blocks.residual import PreNormConfig, make_dropout
from headwise.blocks.stream import Context, Stream
from headwise.blocks.tables import AnyPosition, AnyWiring
from headwise.models.config import ModelConfig
from headwise.models.entry import Check, Entry
from headwise.models.init_weights import init_gpt2
from headwise.models.layers import OneStackFields, build_stack
from headwise.utils.notebook import HtmlTree

TOKENS = 3  # of a time step: return, observation, action


class DecisionTransformerConfig(OneStackFields, ModelConfig):
    """`observation`, `actions` and `discrete` are those of the environment; the task sets them from its logs."""

    tasks = ("act",)
    kind: Literal["decision-transformer"] = "decision-transformer"
    width: int = Field(128, ge=1)
    heads: int = Field(1, ge=1)
    depth: int = Field(3, ge=1)
    activation: Activation = "relu"
    positions: AnyPosition = NoPositionsConfig()  # of tokens, beside the time steps
    wiring: AnyWiring = PreNormConfig()
    attention_dropout: float = Field(0.1, ge=0, lt=1)
    observation: tuple[int, ...] = (17,)  # numbers of a state, or channels, rows and columns of a frame
    actions: int = Field(4, ge=1)  # numbers of a continuous action, or discrete actions to choose from
    discrete: bool = False
    action_tanh: bool = True  # of continuous actions, which then are from -1 to 1
    max_steps: int = Field(4096, ge=1)  # time steps with vectors of their own; later ones have the last
    embedding: Literal["norm", "tanh"] = "norm"  # LayerNorm after all embeddings, or tanh after each

    @field_validator("observation")
    @classmethod
    def _check_observation(cls, shape: tuple[int, ...]) -> tuple[int, ...]:
        if len(shape) not in (1, 3) or min(shape) < 1:
            raise ValueError("is the number of numbers of a state, or channels, rows and columns of a frame")
        return shape

    def build(self, vocab: int = 0, outputs: int = 0, task: str = "") -> Any:
        self.resolve_task(task)
        model = DecisionTransformer(self)
        init_gpt2(model, self.depth)
        return model


class Trajectory(NamedTuple):
    """Time steps of B rows, as a Decision Transformer reads them."""

    returns: Tensor  # (B, T) returns to go, scaled
    observations: Tensor  # (B, T, D), or frames (B, T, channels, H, W)
    actions: Tensor  # (B, T) numbers of discrete ones, or (B, T, A)
    steps: Tensor  # (B, T) numbers of the time steps in their episodes
    keep: Tensor | None = None  # (B, T) True = a real step; None: all, or the others come last, where nobody sees them


class Decision(NamedTuple):
    """What is predicted: the action after each observation, and after each action what comes next."""

    actions: Tensor  # (B, T, A) continuous actions, or logits of discrete ones
    observations: Tensor | None = None  # (B, T, D)
    returns: Tensor | None = None  # (B, T)


class TrajectoryEmbedding(nn.Module):
    """Time steps -> tokens: dropout(norm(embed(return, observation or action) + time step)), or with tanh after each
    embedding instead of the norm."""

    def __init__(self, config: DecisionTransformerConfig):
        super().__init__()
        width, shape, actions = config.width, config.observation, config.actions
        self.returns = nn.Linear(1, width)
        self.observations = (
            nn.Linear(shape[0], width) if len(shape) == 1 else FrameEncoder((shape[0], shape[1], shape[2]), width)
        )
        self.actions = nn.Embedding(actions, width) if config.discrete else nn.Linear(actions, width)
        self.steps = nn.Embedding(config.max_steps, width)
        self.positions = config.positions.build_positions(width)
        tanh = config.embedding == "tanh"
        self.activation = nn.Tanh() if tanh else nn.Identity()
        self.norm = nn.Identity() if tanh else nn.LayerNorm(width)
        self.drop = make_dropout(config.dropout)

    def forward(self, trajectory: Trajectory) -> Stream:
        steps = trajectory.steps.clamp(max=self.steps.num_embeddings - 1)
        embedded = (
            self.returns(trajectory.returns.unsqueeze(-1)),
            self.observations(trajectory.observations),
            self.actions(trajectory.actions),
        )
        tokens = torch.stack([self.activation(x) for x in embedded], dim=2)  # 3 x (B, T, C) -> (B, T, 3, C)
        x = (tokens + self.steps(steps).unsqueeze(2)).flatten(1, 2)  # (B, 3T, C)
        pos = torch.arange(x.shape[1], device=x.device)
        keep = trajectory.keep
        keep = None if keep is None else keep.repeat_interleave(TOKENS, 1)  # (B, T) -> (B, 3T)
        return Stream(self.drop(self.norm(self.positions(x, pos, 0))), pos, keep)


class DecisionTransformer(HtmlTree, nn.Module):
    """Decision Transformer: the action at time t is read from the token of its observation, which sees the returns and
    observations up to t and the actions before it.

    >>> model = DecisionTransformer(ENTRY.configure("tiny")).eval()
    >>> model(*model.make_blank_inputs(2, 5, device="cpu")).actions.shape
    torch.Size([2, 5, 3])
    """

    def __init__(self, config: DecisionTransformerConfig):
        super().__init__()
        self.config, width = config, config.width
        self.embed = TrajectoryEmbedding(config)
        self.stack = build_stack(config, config.stack, causal=True)
        self.predict_action = nn.Linear(config.output_width, config.actions, bias=config.embedding == "norm")
        states = config.observation[0] if len(config.observation) == 1 and config.embedding == "norm" else 0
        self.predict_observation = nn.Linear(config.output_width, states) if states else None
        self.predict_return = nn.Linear(width, 1) if states else None
        self.squash = nn.Tanh() if config.action_tanh and not config.discrete else nn.Identity()

    def forward(self, trajectory: Trajectory) -> Decision:
        x = self.stack(self.embed(trajectory), Context()).x
        _, seen, done = x.unflatten(1, (-1, TOKENS)).unbind(2)  # (B, 3T, C) -> 3 x (B, T, C)
        actions = self.squash(self.predict_action(seen))
        if self.predict_observation is None or self.predict_return is None:
            return Decision(actions)
        return Decision(actions, self.predict_observation(done), self.predict_return(done).squeeze(-1))

    @property
    def max_length(self) -> int:
        """Time steps that it reads at once, where there are learned positions; 0: any number."""
        return self.embed.positions.max_length // TOKENS

    def make_blank_inputs(self, rows: int, length: int, device: str = "meta") -> tuple[Trajectory]:
        """Time steps of zeros, to count costs."""
        config, shape = self.config, (rows, length)
        actions = torch.zeros(shape, dtype=torch.long) if config.discrete else torch.zeros(*shape, config.actions)
        steps = torch.zeros(shape, dtype=torch.long)
        tensors = (torch.zeros(shape), torch.zeros(*shape, *config.observation), actions, steps)
        return (Trajectory(*(tensor.to(device) for tensor in tensors)),)


ATARI: dict[str, Any] = {  # of Breakout: four frames, four actions
    "depth": 6,
    "heads": 8,
    "activation": "gelu",
    "embedding": "tanh",
    "positions": {"kind": "learned", "max_length": 90},
    "observation": (4, 84, 84),
    "discrete": True,
}
TINY: dict[str, Any] = {
    "width": 32,
    "heads": 2,
    "depth": 2,
    "observation": (5,),
    "actions": 3,
    "max_steps": 64,
}
SIZES: Mapping[str, Mapping[str, Any]] = {"base": {}, "atari": ATARI, "tiny": TINY}

ENTRY = Entry(
    name="decision-transformer",
    paper="Chen et al., Decision Transformer: Reinforcement Learning via Sequence Modeling",
    year=2021,
    family="agents",
    config=DecisionTransformerConfig,
    sizes=SIZES,
    vocab=0,
    published={"base": "1,256,854 in transformers, 131,200 of them in tables of words and positions"},
    checks=(
        Check(
            "transformers.DecisionTransformerModel",
            "tests/parity/test_decision_transformer.py::test_predictions_are_equal",
            "transformers",
        ),
        Check(
            "the released code's embeddings for Atari, written out",
            "tests/models/test_decision_transformer.py::test_the_atari_form_is_the_equation",
        ),
    ),
)
