"""``python -m iris_provisioner``: the provisioner as a process."""

from iris_provisioner.service import main
from iris_provisioner.settings import ProvisionerSettings
from iris_service.run import run_service

run_service("provisioner", ProvisionerSettings, main, reads_fleet=True)
