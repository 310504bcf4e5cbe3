"""Operations that differ by backend or device.

Each has the plain form of Keras, and a faster one where a probe finds it.
"""
