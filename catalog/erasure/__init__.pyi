from catalog.erasure.eraser import Eraser as Eraser
from catalog.erasure.eraser import ErasureResult as ErasureResult
from catalog.erasure.requests import ErasureRequest as ErasureRequest
from catalog.erasure.requests import ErasureStatus as ErasureStatus
from catalog.erasure.requests import ErasureStatuses as ErasureStatuses
from catalog.erasure.requests import begun as begun
from catalog.erasure.requests import serve_request as serve_request
