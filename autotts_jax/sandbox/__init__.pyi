from .process import Child as Child
from .process import Sandbox as Sandbox
from .process import SandboxError as SandboxError
