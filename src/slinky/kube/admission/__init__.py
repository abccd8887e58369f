"""An admission server: webhooks as plain functions, with certificates that take care of themselves."""

from slinky.kube.admission.cabundle import BundleKeeper
from slinky.kube.admission.conversion import Converter
from slinky.kube.admission.installing import (
    MUTATING_CONFIGURATIONS,
    VALIDATING_CONFIGURATIONS,
    WebhookEndpoint,
    carried_over,
    delete_configurations,
    patiently,
    write_configuration,
)
from slinky.kube.admission.jsonpatch import diff, pointer
from slinky.kube.admission.metrics import AdmissionMetrics
from slinky.kube.admission.review import AdmissionRequest, AdmissionResponse, UserInfo
from slinky.kube.admission.server import AdmissionServer, Handler, OnFailure
from slinky.kube.admission.serving import CertificateFiles, CertificateSource, SelfMadeCertificate

__all__ = [
    "MUTATING_CONFIGURATIONS",
    "VALIDATING_CONFIGURATIONS",
    "AdmissionMetrics",
    "AdmissionRequest",
    "AdmissionResponse",
    "AdmissionServer",
    "BundleKeeper",
    "CertificateFiles",
    "CertificateSource",
    "Converter",
    "Handler",
    "OnFailure",
    "SelfMadeCertificate",
    "UserInfo",
    "WebhookEndpoint",
    "carried_over",
    "delete_configurations",
    "diff",
    "patiently",
    "pointer",
    "write_configuration",
]
