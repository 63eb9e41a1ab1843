"""EMI on vectors: the forward pass of its networks and the gradient of equation 7, by hand.

Autograd takes almost twice as long. The operations and their shapes are those that autograd calls,
and sums of gradients have its order, so that every bit equals autograd's. What a minibatch needs is
allocated once and reused by all minibatches.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from emi.intrinsic.descent import Descent
from emi.intrinsic.information import gaussian_kl, jsd_bound
from emi.products import NARROW, linear_with, weight_gradient_into

aten = torch.ops.aten
SOFTPLUS = (1, 20)  # β and threshold, the defaults of PyTorch


class Networks(NamedTuple):
    """The networks of EMI, as sequences of layers."""

    phi: nn.Sequential
    psi: nn.Sequential
    S_state: nn.Sequential
    S_joint: nn.Sequential
    T_S: nn.Sequential
    T_A: nn.Sequential


class Weights(NamedTuple):
    """The weights of the terms of equation 7; None for a term without which EMI is an ablation."""

    error: float | None
    info: float | None
    kl: float
    kl_target: Literal["none", "action", "state"]


class Function(NamedTuple):
    """An activation y = f(x) in place, and its derivative: (∂L/∂y, y, out) to ∂L/∂x."""

    forward: Callable[[Tensor], Tensor]
    backward: Callable[[Tensor, Tensor, Tensor], Tensor]


def activation(module: nn.Module) -> Function:
    """The activation of a module and its derivative, as a function of its result."""
    match module:
        case nn.Tanh():
            return Function(
                torch.tanh_, lambda d, y, out: aten.tanh_backward.grad_input(d, y, grad_input=out)
            )
        case nn.ReLU():
            return Function(
                torch.relu_,
                lambda d, y, out: aten.threshold_backward.grad_input(d, y, 0, grad_input=out),
            )
        case nn.ELU():
            a = module.alpha
            return Function(
                lambda x: aten.elu_(x, a),
                lambda d, y, out: aten.elu_backward.grad_input(d, a, 1, 1, True, y, grad_input=out),
            )
        case nn.LeakyReLU():
            slope = module.negative_slope
            return Function(
                lambda x: aten.leaky_relu_(x, slope),
                lambda d, y, out: aten.leaky_relu_backward.grad_input(
                    d, y, slope, True, grad_input=out
                ),
            )
    raise TypeError(f"no derivative for {type(module).__name__}")


class Layer:
    """y = f(x Wᵀ + b) on minibatches of `rows`, and the gradients of L.

    `backward` reads ∂L/∂y from d_y, writes the gradients of W and b to their `.grad`, and that of
    x Wᵀ + b to `d`.
    """

    def __init__(self, module: nn.Linear, f: Function | None, rows: int) -> None:
        self.W, self.b, self.f = module.weight.detach(), module.bias.detach(), f
        module.weight.grad, module.bias.grad = torch.empty_like(self.W), torch.empty_like(self.b)
        self.d_W, self.d_b = module.weight.grad, module.bias.grad
        self.d = self.W.new_empty(rows, len(self.b))
        self.multiply = linear_with(self.W, self.b, rows)
        self.multiply_back = linear_with(self.W.t(), None, rows)
        self.add_up = weight_gradient_into(self.d_W, self.d)
        self.x = self.y = self.d  # of the last minibatch

    def forward(self, x: Tensor) -> Tensor:
        self.x, self.y = x, self.multiply(x)
        if self.f is not None:
            self.f.forward(self.y)
        return self.y

    def backward(self, d_y: Tensor) -> None:
        if self.f is not None:
            self.f.backward(d_y, self.y, self.d)
        torch.sum(self.d, 0, out=self.d_b)
        self.add_up(self.x)


class Network:
    """The layers of an `emi.nets.mlp`, for minibatches in `x` [rows, inputs].

    `forward` writes `y` [rows, outputs]. `backward` reads ∂L/∂y from `d_y` and writes the gradients
    of the parameters to their `.grad`, and ∂L/∂x for the first `d_columns` columns of x to `d_x`.
    """

    def __init__(self, modules: Iterable[nn.Module], x: Tensor, *, d_columns: int = 0) -> None:
        linear: list[tuple[nn.Linear, Function | None]] = []
        for module in modules:
            if isinstance(module, nn.Linear):
                linear.append((module, None))
            elif linear:  # before the first layer is `Flat`
                linear[-1] = linear[-1][0], activation(module)
        self.layers = [Layer(module, f, len(x)) for module, f in linear]
        self.x = self.y = x
        self.d_y, self.d_x = torch.empty_like(x), None
        if self.layers:
            first, last = self.layers[0], self.layers[-1]
            # Others keep views of these four.
            self.y, self.d_y = torch.empty_like(last.d), last.d
            last.multiply = functools.partial(_into, self.y, last.b, last.W.t())
            self.d_x = x.new_empty(len(x), d_columns)
            self.W_of_d_x = first.W[:, :d_columns]

    def forward(self) -> None:
        x = self.x
        for layer in self.layers:
            x = layer.forward(x)

    def backward(self) -> None:
        d_y = self.d_y
        for layer in reversed(self.layers):
            layer.backward(d_y)
            if layer is not self.layers[0]:
                d_y = layer.multiply_back(layer.d)
        if self.d_x is not None:
            torch.mm(self.layers[0].d, self.W_of_d_x, out=self.d_x)


def _into(y: Tensor, b: Tensor, W_t: Tensor, x: Tensor) -> Tensor:
    return torch.addmm(b, x, W_t, out=y)


class Statistic:
    """T on a joint sample and on a sample of the product of the marginals, `half` rows each."""

    def __init__(self, modules: Iterable[nn.Module], x: Tensor) -> None:
        half = len(x) // 2
        self.net = Network(modules, x, d_columns=x.shape[1])
        assert self.net.d_x is not None
        self.joint, self.marginal = x.split(half)
        self.d_joint, self.d_marginal = self.net.d_x.split(half)
        self.T_joint, self.T_marginal = self.net.y.flatten().split(half)
        self.d_T_joint, self.d_T_marginal = self.net.d_y.flatten().split(half)
        self.minus = torch.empty_like(self.T_joint)

    def backward(self, weight: Tensor) -> Tensor:
        """`jsd_loss`. The gradient is that of the sum of softplus times `weight` [half]."""
        self.net.forward()
        torch.neg(self.T_joint, out=self.minus)
        loss = softplus(self.minus).mean() + softplus(self.T_marginal).mean()
        for x, d in ((self.minus, self.d_T_joint), (self.T_marginal, self.d_T_marginal)):
            aten.softplus_backward.grad_input(weight, x, *SOFTPLUS, grad_input=d)
        self.d_T_joint.neg_()
        self.net.backward()
        return loss


class Minibatch:
    """Equation 7 and its gradient, for minibatches of m rows.

    `backward` reads `obs`, `next_obs` [m, D] and `action` [m, A], the output of `ActionVectors`.
    """

    def __init__(self, nets: Networks, weights: Weights, m: int) -> None:
        first, last, half = nets.psi[0], nets.psi[-1], m // 2
        assert isinstance(first, nn.Linear)
        assert isinstance(last, nn.Linear)
        A, d, like = first.in_features, last.out_features, last.weight.detach()
        inputs = next(x.in_features for x in nets.phi if isinstance(x, nn.Linear))

        self.phi = Network(nets.phi, like.new_empty(2 * m, inputs))
        self.obs, self.next_obs = self.phi.x.split(m)
        self.action = like.new_empty(m, A)
        self.psi = Network(nets.psi, self.action)
        # φ(s), ψ(a), φ(s') and their gradients
        self.vectors = (*self.phi.y.split(m), self.psi.y)
        self.d_vectors = (*self.phi.d_y.split(m), self.psi.d_y)

        self.error = like.new_zeros(m, d)
        self.S: tuple[Network, Network] | None = None
        if weights.error is not None:
            state = Network(nets.S_state, self.obs)
            width = state.y.shape[1]
            # The action has no weights: its columns need no gradient.
            columns = width if width >= NARROW else width + A
            joint = Network(nets.S_joint, like.new_empty(m, width + A), d_columns=columns)
            assert joint.d_x is not None
            state.d_y = joint.d_x[:, :width]
            self.S, self.error = (state, joint), joint.y
            self.features, self.appended = joint.x.split([width, A], 1)

        self.T: tuple[Statistic, Statistic] | None = None
        if weights.info is not None and half > 0:
            xs = (like.new_empty(2 * half, 3 * d) for _ in range(2))
            self.T = Statistic(nets.T_S, next(xs)), Statistic(nets.T_A, next(xs))
            phi, phi_next, psi = self.vectors
            front, back = slice(half), slice(half, 2 * half)
            self.s, self.a, self.n = phi[front], psi[front], phi_next[front]
            self.other_a, self.other_n = psi[back], phi_next[back]
            d_phi, d_next, d_psi = self.d_vectors
            self.d_s, self.d_a, self.d_n = d_phi[front], d_psi[front], d_next[front]
            self.d_other_a, self.d_other_n = d_psi[back], d_next[back]
            self.info_weight = like.new_full((half,), weights.info).div_(half)

        self.residual, self.squares, self.d_residual = (like.new_empty(m, d) for _ in range(3))
        # ∂ mean(‖x‖²) / ∂x = 2x / m, in the precision of the weights
        self.linear_scale = 2 * (like.new_ones(1) / m).item()
        self.error_scale = 2 * (like.new_full((1,), weights.error or 0.0) / m).item()
        self.kl_target = weights.kl_target
        self.zero, self.kl_scale = like.new_zeros(()), like.new_full((), weights.kl)

    @torch.no_grad()
    def backward(self) -> Tensor:
        """Write the gradient to `.grad` of the parameters; return the entries of `Losses`, [6]."""
        (phi, phi_next, psi), (d_phi, d_next, d_psi) = self.vectors, self.d_vectors
        self.phi.forward()
        self.psi.forward()
        if self.S is not None:
            state, joint = self.S
            state.forward()
            self.features.copy_(state.y)
            self.appended.copy_(self.action)
            joint.forward()
        r = torch.add(phi, psi, out=self.residual).add_(self.error).sub_(phi_next)
        linear = torch.mul(r, r, out=self.squares).sum(1).mean()
        error = torch.mul(self.error, self.error, out=self.squares).sum(1).mean()

        # Autograd adds the gradients of the term that was computed last first: KL, information,
        # prediction error.
        self.phi.d_y.zero_()
        self.psi.d_y.zero_()
        kl = info = bound_state = bound_action = self.zero
        match self.kl_target:
            case "action":
                kl = self._backward_kl(psi, d_psi)
            case "state":
                kl = self._backward_kl(phi, d_phi)
        if self.T is not None:
            loss_state, loss_action = self._backward_information(*self.T)
            info = loss_state + loss_action
            bound_state, bound_action = jsd_bound(loss_state), jsd_bound(loss_action)
        d_r = torch.mul(r, self.linear_scale, out=self.d_residual)
        d_phi.add_(d_r)
        d_psi.add_(d_r)
        d_next.sub_(d_r)
        if self.S is not None:
            torch.mul(self.error, self.error_scale, out=joint.d_y).add_(d_r)
            joint.backward()
            state.backward()
        self.phi.backward()
        self.psi.backward()
        return torch.stack((linear, error, info, kl, bound_state, bound_action))

    def _backward_kl(self, x: Tensor, d_x: Tensor) -> Tensor:
        """`gaussian_kl` by autograd: x [m, d] is small."""
        with torch.enable_grad():
            leaf = x.detach().requires_grad_()
            kl = gaussian_kl(leaf)
            (gradient,) = torch.autograd.grad(kl, leaf, self.kl_scale)
        d_x.copy_(gradient)
        return kl.detach()

    def _backward_information(self, T_S: Statistic, T_A: Statistic) -> tuple[Tensor, Tensor]:
        """L_S and L_A; their gradients are added to those of φ(s), ψ(a) and φ(s')."""
        torch.cat([self.s, self.a, self.n], 1, out=T_S.joint)
        torch.cat([self.s, self.a, self.other_n], 1, out=T_S.marginal)
        T_A.joint.copy_(T_S.joint)
        torch.cat([self.s, self.other_a, self.n], 1, out=T_A.marginal)
        losses = T_S.backward(self.info_weight), T_A.backward(self.info_weight)
        joint = T_A.d_joint.add_(T_S.d_joint)
        (s, a, n), (s_S, a_S, n_S), (s_A, a_A, n_A) = (
            part.chunk(3, 1) for part in (joint, T_S.d_marginal, T_A.d_marginal)
        )
        self.d_s.add_(s_A.add_(s_S).add_(s))
        self.d_a.add_(a_S.add_(a))
        self.d_n.add_(n_A.add_(n))
        self.d_other_a.add_(a_A)
        self.d_other_n.add_(n_S)
        return losses


@contextmanager
def steps_by_hand(
    nets: Networks, weights: Weights, descent: Descent, m: int
) -> Iterator[Callable[[Tensor, Tensor, Tensor], Tensor]]:
    """`EMI.step` for many minibatches of m vectors."""
    descent.optimizer.zero_grad()  # networks that are not used have no gradient
    minibatch = Minibatch(nets, weights, m)
    with descent.updates() as update:

        def step(obs: Tensor, action: Tensor, next_obs: Tensor) -> Tensor:
            minibatch.obs.copy_(obs.reshape(m, -1))
            minibatch.next_obs.copy_(next_obs.reshape(m, -1))
            minibatch.action.copy_(action)
            losses = minibatch.backward()
            update()
            return losses

        yield step
