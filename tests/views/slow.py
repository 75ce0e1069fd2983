"""Every augmentation for one image, as loops over single pixels, written from its definition and from nothing else.

Images are NumPy arrays (c, h, w) of float64; a row of draws is a dict of single values.
"""

import math

import numpy as np

LUMA = np.array([0.299, 0.587, 0.114])
YIQ = np.array([[0.299, 0.587, 0.114], [0.596, -0.274, -0.322], [0.211, -0.523, 0.312]])


def crop_box(draw, h, w, ratio):
    """Top, left, height, width: the first try that fits, else the centred crop nearest in ratio."""
    for area, aspect in zip(draw["crop_area"], draw["crop_ratio"], strict=True):
        height = round(math.sqrt(area * h * w / aspect))
        width = round(math.sqrt(area * h * w * aspect))
        if 0 < height <= h and 0 < width <= w:
            down, right = draw["crop_place"]
            return math.floor(down * (h - height + 1)), math.floor(right * (w - width + 1)), height, width
    height, width = h, w
    if w / h < ratio[0]:
        height = round(w / ratio[0])
    if w / h > ratio[1]:
        width = round(h * ratio[1])
    return (h - height) // 2, (w - width) // 2, height, width


def resize_line(line, size):
    """Antialiased bilinear: each output pixel is a triangle-weighted mean of the pixels around its centre."""
    step = len(line) / size
    reach = max(step, 1.0)
    out = []
    for i in range(size):
        centre = (i + 0.5) * step
        weights = [max(0.0, 1 - abs(j + 0.5 - centre) / reach) for j in range(len(line))]
        out.append(sum(w * x for w, x in zip(weights, line, strict=True)) / sum(weights))
    return out


def resize(image, size):
    out = np.empty((len(image), size, size))
    for c, plane in enumerate(image):
        narrow = np.array([resize_line(row, size) for row in plane])
        out[c] = np.array([resize_line(column, size) for column in narrow.T]).T
    return out


def crop(image, draw, size, ratio=(3 / 4, 4 / 3)):
    top, left, height, width = crop_box(draw, *image.shape[1:], ratio)
    view = image[:, top : top + height, left : left + width]
    return resize(view[:, :, ::-1] if draw["flip"] else view, size)


def grey(image):
    return image[:1] if len(image) == 1 else np.tensordot(LUMA, image, 1)[None]


def jitter(image, draw):
    """One step after another in the drawn order, on values of [0, 1] that nothing cuts."""
    if not draw["jitter"]:
        return image
    for step in draw["order"]:
        if step == 0:
            image = draw["brightness"] * image
        if step == 1:
            image = draw["contrast"] * image + (1 - draw["contrast"]) * grey(image).mean()
        if step == 2:
            image = draw["saturation"] * image + (1 - draw["saturation"]) * grey(image)
        if step == 3 and len(image) == 3:
            angle = -2 * math.pi * draw["hue"]
            y, i, q = np.tensordot(YIQ, image, 1)
            chroma = (i + 1j * q) * complex(math.cos(angle), math.sin(angle))
            image = np.tensordot(np.linalg.inv(YIQ), np.stack([y, chroma.real, chroma.imag]), 1)
    return image


def blur(image, sigma, radius):
    """Direct two-dimensional convolution, edges reflected without repeating the last pixel."""
    if sigma == 0:
        return image
    size = image.shape[1]
    weight = {k: math.exp(-(k**2) / (2 * sigma**2)) for k in range(-radius, radius + 1)}
    total = sum(weight.values()) ** 2

    def reflect(i):
        i = abs(i)
        return 2 * (size - 1) - i if i >= size else i

    out = np.zeros_like(image)
    for y in range(size):
        for x in range(size):
            for k in weight:
                for m in weight:
                    out[:, y, x] += weight[k] * weight[m] / total * image[:, reflect(y + k), reflect(x + m)]
    return out


def affine(image, draw):
    """Each pixel of the view is looked up where the inverse of the movement puts it, bilinear, edges repeated."""
    size = image.shape[1]
    stretch = math.sqrt(draw["ratio"])
    zoom = np.diag([draw["zoom"] * stretch, draw["zoom"] / stretch])
    shear = np.array([[1, draw["shear"]], [0, 1]])
    cos, sin = math.cos(draw["rotation"]), math.sin(draw["rotation"])
    back = np.linalg.inv(np.array([[cos, -sin], [sin, cos]]) @ shear @ zoom)
    middle = (size - 1) / 2
    out = np.empty_like(image)
    for row in range(size):
        for column in range(size):
            moved = np.array([column, row]) - middle - np.array(draw["shift"]) * size
            x, y = np.clip(back @ moved + middle, 0, size - 1)
            left, top = min(int(x), size - 2), min(int(y), size - 2)
            x, y = x - left, y - top
            upper = (1 - x) * image[:, top, left] + x * image[:, top, left + 1]
            lower = (1 - x) * image[:, top + 1, left] + x * image[:, top + 1, left + 1]
            out[:, row, column] = (1 - y) * upper + y * lower
    return out


def normalise(image, mean, std):
    return (image - np.array(mean)[:, None, None]) / np.array(std)[:, None, None]


def photo(image, draw, views):
    """The whole of `PhotoViews` for one uint8 image (c, h, w)."""
    view = crop(image.astype(float) / 255, draw, views.size, views.crop.ratio)
    if views.jitter is not None:
        view = jitter(view, draw)
    if draw.get("grey"):
        view = np.repeat(grey(view), len(view), 0)
    if views.blur is not None:
        view = blur(view, draw["sigma"], views.blur.radius)
    view = view.clip(0, 1)
    if draw.get("solarise"):
        view = np.where(view >= views.threshold, 1 - view, view)
    return normalise(view, views.mean, views.std)
