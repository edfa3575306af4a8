from perago.authoring.errors import PeragoError


class DevStackError(PeragoError):
    """The local stack cannot be had, started or stopped; the message says how to go on."""
