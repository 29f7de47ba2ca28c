"""The trainer's text-to-speech model (train/tts.h) as somebody writes it in PyTorch: modules, masks, fused attention.

Its parameters have the names of `model.safetensors`, so that a test can load one and compare the losses.
"""
import math

import torch
import torch.nn.functional as F
from torch import nn

KERNEL = 5
POSITIVE, SIGMA = 8.0, 0.2  # of the stop loss, and of the guide
WEIGHTS = {"mel_l1": 1, "mel_l2": 1, "post_l1": 1, "post_l2": 1, "stop": 0.5, "guide": 1}
PER_ROW = {"guide"}  # the other losses are per frame
NANO = {"bins": 80, "reduction": 4, "reference_frames": 128, "mel_mean": -4.75, "mel_std": 2.25, "text_width": 128, "text_depth": 3,
        "decoder_width": 192, "decoder_depth": 4, "head_width": 64, "prenet_width": 64, "style_width": 32, "postnet_width": 128,
        "postnet_depth": 5}


def mask_of(lengths, size):
    return torch.arange(size) < lengths[:, None]


def positions(count, width):
    rate = torch.exp(torch.arange(width // 2) * (-math.log(10000.0) / (width // 2)))
    angle = torch.arange(count)[:, None] * rate
    return torch.cat([angle.sin(), angle.cos()], 1)


class Attention(nn.Module):
    def __init__(self, width, memory, heads):
        super().__init__()
        self.heads = heads
        self.query, self.key_value, self.out = nn.Linear(width, width), nn.Linear(memory, 2 * width), nn.Linear(width, width)

    def split(self, x):
        return x.unflatten(2, (self.heads, -1)).transpose(1, 2)

    def forward(self, x, memory, mask=None, causal=False, head=False):
        """And the weights of head 0, where they are asked for."""
        q = self.split(self.query(x))
        k, v = (self.split(part) for part in self.key_value(memory).chunk(2, dim=2))
        weights = None
        if head:
            scores = q[:, 0] @ k[:, 0].transpose(1, 2) / math.sqrt(q.shape[3])
            weights = scores.masked_fill(~mask[:, 0], -math.inf).softmax(2)
        y = F.scaled_dot_product_attention(q, k, v, mask, is_causal=causal)
        return self.out(y.transpose(1, 2).flatten(2)), weights


class Layer(nn.Module):
    def __init__(self, width, memory, head_width, dropout):
        super().__init__()
        heads = width // head_width
        self.self_norm, self.feed_norm, self.drop = nn.LayerNorm(width), nn.LayerNorm(width), nn.Dropout(dropout)
        self.self = Attention(width, width, heads)
        if memory:
            self.cross_norm, self.cross = nn.LayerNorm(width), Attention(width, memory, heads)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x, mask, text=None, head=False):
        y, weights = self.self_norm(x), None
        x = x + self.drop(self.self(y, y, mask if text is None else None, causal=text is not None)[0])
        if text is not None:
            y, weights = self.cross(self.cross_norm(x), text, mask, head=head)
            x = x + self.drop(y)
        return x + self.drop(self.narrow(F.gelu(self.wide(self.feed_norm(x))))), weights


class Tts(nn.Module):
    def __init__(self, n_symbols, description=NANO, dropout=0.1, prenet_dropout=0.5, reference_dropout=0.1):
        super().__init__()
        self.d = d = description
        self.prenet_dropout, self.reference_dropout = prenet_dropout, reference_dropout
        text, width, channels, bins = d["text_width"], d["decoder_width"], d["postnet_width"], d["bins"]
        self.register_buffer("mel_mean", torch.tensor(d["mel_mean"]))
        self.register_buffer("mel_std", torch.tensor(d["mel_std"]))
        self.symbols = nn.Parameter(torch.randn(n_symbols, text))
        self.text_scale, self.decoder_scale = nn.Parameter(torch.ones(())), nn.Parameter(torch.ones(()))
        self.no_style = nn.Parameter(torch.zeros(d["style_width"]))
        self.text = self.rows("text", d["text_depth"], lambda _: Layer(text, 0, d["head_width"], dropout))
        self.decoder = self.rows("decoder", d["decoder_depth"], lambda _: Layer(width, text, d["head_width"], dropout))
        self.reference = self.rows("reference", 3, lambda i: self.conv(bins if i == 0 else channels, channels))
        last = d["postnet_depth"] - 1
        self.postnet = self.rows("postnet", last + 1, lambda i: self.conv(bins if i == 0 else channels, bins if i == last else channels))
        self.text_norm, self.decoder_norm, self.reference_norm = nn.LayerNorm(text), nn.LayerNorm(width), nn.LayerNorm(channels)
        self.reference_out, self.style_in = nn.Linear(channels, d["style_width"]), nn.Linear(d["style_width"], width)
        self.prenet_first, self.prenet_second = nn.Linear(bins, d["prenet_width"]), nn.Linear(d["prenet_width"], d["prenet_width"])
        self.prenet_out = nn.Linear(d["prenet_width"], width)
        self.mel_head, self.stop_head = nn.Linear(width, d["reduction"] * bins), nn.Linear(width, 1)
        self.drop = nn.Dropout(dropout)

    def rows(self, name, count, make):
        """So many modules, named as in the checkpoint: name0, name1, ..."""
        made = [make(i) for i in range(count)]
        for i, module in enumerate(made):
            self.add_module(f"{name}{i}", module)
        return made

    @staticmethod
    def conv(inputs, outputs):
        return nn.Conv1d(inputs, outputs, KERNEL, padding=KERNEL // 2)

    def encode(self, tokens, lengths, mask):
        x = F.embedding(tokens.masked_fill(~mask_of(lengths, tokens.shape[1]), 0), self.symbols)
        x = x + self.text_scale * positions(x.shape[1], x.shape[2])
        for layer in self.text:
            x, _ = layer(x, mask)
        return self.text_norm(x)

    def style(self, mel, lengths):
        frames = self.d["reference_frames"]
        start = (lengths - frames).clamp_min(0) // 2
        index = (start[:, None] + torch.arange(frames)).clamp_max(mel.shape[1] - 1).long()
        padding = ~mask_of(lengths, frames)[:, None]
        x = mel.gather(1, index[:, :, None].expand(-1, -1, mel.shape[2])).transpose(1, 2)
        for conv in self.reference:
            x = F.relu(conv(x.masked_fill(padding, 0)))
        mean = x.masked_fill(padding, 0).sum(2) / lengths.clamp(1, frames)[:, None]
        style = torch.tanh(self.reference_out(self.reference_norm(mean)))
        there = (lengths > 0)[:, None]
        if self.training:
            there = there & (torch.rand(len(lengths), 1) >= self.reference_dropout)
        return self.style_in(torch.where(there, style, self.no_style))[:, None]

    def prenet(self, x):
        for linear in (self.prenet_first, self.prenet_second):
            x = F.dropout(F.relu(linear(x)), self.prenet_dropout, self.training)
        return self.prenet_out(x)

    def forward(self, tokens, token_lengths, mel, mel_lengths):
        """Sums over all valid elements, by name. Frames are a multiple of the reduction."""
        rows, frames, bins = mel.shape
        r = self.d["reduction"]
        target = (mel - self.mel_mean) / self.mel_std
        padding = ~mask_of(mel_lengths, frames)[:, :, None]
        mel = target.masked_fill(padding, 0)
        mask = mask_of(token_lengths.clamp_min(1), tokens.shape[1])[:, None, None]
        text = self.encode(tokens, token_lengths, mask)
        told = F.pad(mel.view(rows, frames // r, r, bins)[:, :-1, r - 1], (0, 0, 1, 0))
        x = self.prenet(told) + self.style(mel, mel_lengths)
        x = x + self.decoder_scale * positions(x.shape[1], x.shape[2])
        alignments = []
        for i, layer in enumerate(self.decoder):
            guided = i >= len(self.decoder) - 2
            x, weights = layer(x, mask, text, head=guided)
            alignments += [weights] if guided else []
        x = self.decoder_norm(x)
        before, stop = self.mel_head(x).view(rows, frames, bins), self.stop_head(x)[:, :, 0]
        y = before.transpose(1, 2)
        for i, conv in enumerate(self.postnet):
            y = conv(y.masked_fill(padding.transpose(1, 2), 0))
            if i + 1 < len(self.postnet):
                y = self.drop(torch.tanh(y))
        post = before + y.transpose(1, 2)

        losses = {}
        for name, out in (("mel", before), ("post", post)):
            off = (out - target).masked_fill(padding, 0)
            losses[f"{name}_l1"], losses[f"{name}_l2"] = off.abs().sum() / bins, off.square().sum() / bins
        groups, group = ((mel_lengths + r - 1) // r)[:, None], torch.arange(frames // r)
        cross = torch.where(group == groups - 1, F.softplus(-stop) * POSITIVE, F.softplus(stop))
        losses["stop"] = cross.masked_fill(group >= groups, 0).sum() * r
        along_text = (torch.arange(tokens.shape[1]) + 0.5) / token_lengths.clamp_min(1)[:, None, None]
        many = groups.clamp_min(1)
        away = along_text - ((group + 0.5) / many)[:, :, None]
        cost = (1 - torch.exp(away.square() * (-0.5 / SIGMA**2))) / many[:, :, None]
        losses["guide"] = (sum(alignments) * cost).masked_fill((group >= groups)[:, :, None], 0).sum() / len(alignments)
        return losses


def weighted(losses, mel_lengths):
    """What is minimised, from a batch's sums."""
    frames, rows = mel_lengths.sum(), (mel_lengths > 0).sum()
    return sum(WEIGHTS[name] * total / (rows if name in PER_ROW else frames) for name, total in losses.items())
