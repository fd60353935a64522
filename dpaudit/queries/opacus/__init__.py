"""Any registered noise source in an Opacus run; needs ``pip install 'dpaudit[opacus]'``."""

from dpaudit.queries.opacus.attach import check_model, use_noise_source
from dpaudit.queries.opacus.draw import Release
from dpaudit.queries.opacus.secure import secure_noise

__all__ = ["Release", "check_model", "secure_noise", "use_noise_source"]
