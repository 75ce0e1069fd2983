"""Batch norm from its formula, one group and one channel at a time: the reference."""

import torch


def split_batch_norm(batch, weight, bias, splits, eps=1e-5):
    """(n, c, ...) normalised by groups of consecutive rows; the groups' means and unbiased variances (splits, c)."""
    n, c = batch.shape[:2]
    sizes = [n // splits + (1 if i < n % splits else 0) for i in range(splits)]
    output, means, variances, start = [], [], [], 0
    for size in sizes:
        group = batch[start : start + size]
        start += size
        channels = []
        for j in range(c):
            values = group[:, j]
            count = values.numel()
            mean = values.sum() / count
            variance = ((values - mean) ** 2).sum() / count
            channels.append((values - mean) / (variance + eps) ** 0.5 * weight[j] + bias[j])
            means.append(mean.detach())
            variances.append(variance.detach() * count / (count - 1))
        output.append(torch.stack(channels, dim=1))
    return torch.cat(output), torch.stack(means).reshape(splits, c), torch.stack(variances).reshape(splits, c)
