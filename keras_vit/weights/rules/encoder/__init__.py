"""The rules that the families of ViTs after the paper share."""
