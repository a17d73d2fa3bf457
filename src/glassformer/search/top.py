"""The largest of many numbers, several times as fast as `topk` where there are thousands.

B rows, C columns, R numbers in each of G groups, C = R * G.
"""

from __future__ import annotations

from typing import Final

from torch import Tensor

_MANY: Final = 2000  # rows times groups, below which it is not worth the trouble
_SIZES: Final = range(16, 81)  # small ones first: maxima over long rows are quicker than many of short ones


def top(values: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Give the `k` largest of each row (B, C), largest first, and where they are.

    The k largest lie in the k groups whose largest are largest, and maxima of groups are quick to find.
    """
    batch, count = values.shape
    size = next((size for size in _SIZES if count % size == 0), 1)
    n_groups = count // size
    if size == 1 or n_groups <= k or batch * n_groups < _MANY:
        best, where = values.topk(k)
        return best, where
    groups = values.view(batch, size, n_groups)  # numbers that lie n_groups apart
    chosen = groups.amax(dim=1).topk(k).indices  # (B, k)
    some = groups.gather(2, chosen.unsqueeze(1).expand(-1, size, -1))  # (B, R, k)
    best, place = some.flatten(1).topk(k)
    return best, (place // k) * n_groups + chosen.gather(1, place % k)
