"""Numbers and elements of constants as the text form writes them: the shortest text that reads back equal.

The same text as the server's printer writes (docs/ir.md). Narrow floats (f16, bf16, f8) are rounded once, from exact
fractions. Thread-safety: pure functions. Tested by tests/python/test_graph_text.py
"""

from __future__ import annotations

import dataclasses
import decimal
import math
import re
import struct
from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from fuseline.dtypes import DType

_QUIET_NAN = 0x7FF8000000000000
_NAN_BITS = re.compile(r"nan\(0x([0-9a-fA-F]{1,16})\)\Z")
_INTEGER = re.compile(r"-?[0-9]+\Z")


@dataclasses.dataclass(frozen=True)
class _Narrow:
    mantissa_bits: int
    bias: int
    max_bits: int  # the largest finite value
    infinity_bits: int  # max_bits where the format has no infinity
    nan_bits: int
    sign_bit: int
    saturates: bool


_NARROW = {
    DType.F16: _Narrow(10, 15, 0x7BFF, 0x7C00, 0x7E00, 0x8000, False),
    DType.BF16: _Narrow(7, 127, 0x7F7F, 0x7F80, 0x7FC0, 0x8000, False),
    DType.F8E4M3: _Narrow(3, 7, 0x7E, 0x7E, 0x7F, 0x80, True),
    DType.F8E5M2: _Narrow(2, 15, 0x7B, 0x7C, 0x7E, 0x80, True),
}
_INTEGER_FORMATS = {DType.I64: "<i8", DType.I32: "<i4", DType.I16: "<i2", DType.I8: "<i1", DType.U8: "<u1"}


def _decode_narrow(form: _Narrow, bits: int) -> float:
    magnitude = bits & (form.sign_bit - 1)
    sign = -1.0 if bits & form.sign_bit else 1.0
    if magnitude > form.infinity_bits:
        return math.nan
    if magnitude > form.max_bits:
        return sign * math.inf
    field = magnitude >> form.mantissa_bits
    mantissa = magnitude & ((1 << form.mantissa_bits) - 1)
    least = 1 - form.bias - form.mantissa_bits
    if field == 0:
        return sign * math.ldexp(mantissa, least)
    return sign * math.ldexp(mantissa + (1 << form.mantissa_bits), least + field - 1)


def _encode_narrow(form: _Narrow, value: Fraction, negative: bool) -> int:
    sign = form.sign_bit if negative else 0
    magnitude = abs(value)
    if magnitude == 0:
        return sign
    # The exponent e with 2^e <= magnitude < 2^(e+1).
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    if magnitude < Fraction(2) ** exponent:
        exponent -= 1
    least = 1 - form.bias
    quantum = max(exponent, least) - form.mantissa_bits
    over = form.max_bits if form.saturates else form.infinity_bits
    if exponent > 2 * form.bias + 2:
        return sign | over
    steps = round(magnitude / Fraction(2) ** quantum)  # halves to even
    bits = ((quantum - (least - form.mantissa_bits)) << form.mantissa_bits) + steps
    return sign | (over if bits > form.max_bits else bits)


def _finish(text: str) -> str:
    return text if "." in text or "e" in text else text + ".0"


def _shortest(digits: str, exact: float) -> str:
    """Fixed or scientific notation, whichever is shorter, of the shortest digits ("1.5", "1e-07", …) of a number."""
    sign, numbers, exponent = decimal.Decimal(digits).as_tuple()
    if not isinstance(exponent, int):
        raise ValueError(digits)
    prefix = "-" if sign else ""
    text = "".join(map(str, numbers)).lstrip("0")
    if not text:
        return prefix + "0"
    stripped = text.rstrip("0")
    exponent += len(text) - len(stripped)
    text = stripped
    point = len(text) + exponent  # digits before the point
    if exponent >= 0:
        fixed = str(abs(int(exact)))
    elif point > 0:
        fixed = text[:point] + "." + text[point:]
    else:
        fixed = "0." + "0" * -point + text
    power = point - 1
    scientific = text[0] + ("." + text[1:] if len(text) > 1 else "") + f"e{'-' if power < 0 else '+'}{abs(power):02d}"
    return prefix + (fixed if len(fixed) <= len(scientific) else scientific)


def double_text(value: float) -> str:
    """A float as the text form writes it."""
    if math.isnan(value):
        bits = struct.unpack("<Q", struct.pack("<d", value))[0]
        return "nan" if bits == _QUIET_NAN else f"nan(0x{bits:x})"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return _finish(_shortest(repr(value), value))


def literal_text(value: bool | int | float) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int) else double_text(value)


def parse_number(text: str) -> int | float:
    """A number token. Raises ValueError with a message that has no position."""
    if text in ("inf", "-inf", "nan"):
        return math.nan if text == "nan" else float(text)
    nan = _NAN_BITS.match(text)
    if nan is not None:
        value = struct.unpack("<d", struct.pack("<Q", int(nan[1], 16)))[0]
        if not math.isnan(value):
            raise ValueError(f"number {text} is not a nan of f64")
        return value
    if _INTEGER.match(text):
        integer = int(text)
        if not -(2**63) <= integer < 2**63:
            raise ValueError(f"number {text} does not fit i64")
        return integer
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"number {text} does not fit f64")
    return value


def elements_text(dtype: DType, data: bytes) -> Iterator[str]:
    """The text of each element of a constant."""
    if dtype is DType.BOOL:
        for byte in data:
            yield "true" if byte else "false"
    elif dtype in _INTEGER_FORMATS:
        for integer in np.frombuffer(data, _INTEGER_FORMATS[dtype]):
            yield str(int(integer))
    elif dtype is DType.F64:
        for double in np.frombuffer(data, "<f8").tolist():
            yield double_text(double)
    elif dtype is DType.F32:
        for value, bits in zip(np.frombuffer(data, "<f4"), np.frombuffer(data, "<u4").tolist()):
            if math.isnan(value):
                yield "nan" if bits == 0x7FC00000 else f"nan(0x{bits:x})"
            elif math.isinf(value):
                yield "inf" if value > 0 else "-inf"
            else:
                yield _finish(_shortest(np.format_float_scientific(value, unique=True, trim="-"), float(value)))
    else:
        form = _NARROW[dtype]
        for bits in np.frombuffer(data, "<u1" if dtype.itemsize == 1 else "<u2").tolist():
            yield _narrow_text(form, bits)


def _narrow_text(form: _Narrow, bits: int) -> str:
    value = _decode_narrow(form, bits)
    if math.isnan(value):
        return "nan" if bits == form.nan_bits else f"nan(0x{bits:x})"
    if math.isfinite(value):
        for precision in range(9):
            digits = f"{value:.{precision}e}"
            if _encode_narrow(form, Fraction(digits), digits.startswith("-")) == bits:
                return double_text(float(digits))
    return double_text(value)


def parse_element(text: str, dtype: DType) -> bytes:
    """The bytes of an element. Raises ValueError with a message that has no position."""
    wrong = ValueError(f"element {text} does not fit {dtype}")
    if (text in ("true", "false")) != (dtype is DType.BOOL):
        raise wrong
    if dtype is DType.BOOL:
        return b"\1" if text == "true" else b"\0"
    if dtype.is_integer:
        number = parse_number(text)
        if not math.isfinite(number) or number != int(number):
            raise wrong
        limits = np.iinfo(_INTEGER_FORMATS[dtype])
        if not limits.min <= number <= limits.max:
            raise wrong
        return int(number).to_bytes(dtype.itemsize, "little", signed=dtype is not DType.U8)
    nan = _NAN_BITS.match(text)
    if nan is not None:
        bits = int(nan[1], 16)
        if bits >= 1 << (8 * dtype.itemsize) or not _is_nan(dtype, bits):
            raise wrong
        return bits.to_bytes(dtype.itemsize, "little")
    if text in ("inf", "-inf", "nan"):
        value = parse_number(text)
        if dtype is DType.F64:
            return struct.pack("<d", value)
        if dtype is DType.F32:
            return struct.pack("<f", value)
        form = _NARROW[dtype]
        bits = form.nan_bits if math.isnan(value) else form.infinity_bits | (form.sign_bit if value < 0 else 0)
        return bits.to_bytes(dtype.itemsize, "little")
    if dtype is DType.F64:
        return struct.pack("<d", float(parse_number(text)))
    if dtype is DType.F32:
        # NumPy reads decimal text into f32 with one rounding; too large a number becomes an infinity.
        with np.errstate(over="ignore"):
            return np.float32(text).tobytes()
    return _encode_narrow(_NARROW[dtype], Fraction(text), text.startswith("-")).to_bytes(dtype.itemsize, "little")


def _is_nan(dtype: DType, bits: int) -> bool:
    if dtype is DType.F64:
        return math.isnan(struct.unpack("<d", bits.to_bytes(8, "little"))[0])
    if dtype is DType.F32:
        return math.isnan(struct.unpack("<f", bits.to_bytes(4, "little"))[0])
    return math.isnan(_decode_narrow(_NARROW[dtype], bits))
