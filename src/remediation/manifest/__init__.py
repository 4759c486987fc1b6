"""Byte surgery on a manifest: one typed change to one object, and not a byte beside it.

A parser finds the span, the bytes are spliced, the result is parsed again and compared with what was meant. What cannot be edited safely
is refused with the reason. Pure. To be read in this order: `editing` is the story; `address` and `objects` say where, `tree` and `values`
what stands in the file, `immutability` what may not change, `plan` (by `walk` and `agreement`) what has to; `surgeon` cuts in the `style`
of the file and `proof` looks at the result. `reading` asks without changing.
"""
