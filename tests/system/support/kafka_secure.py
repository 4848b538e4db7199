# SPDX-License-Identifier: Apache-2.0
"""A real Kafka broker behind TLS: listeners that want a password (SASL_SSL, by PLAIN or SCRAM-SHA-256)
or a certificate (SSL).  `bootstrap` stays without any of it, for what the tests look at."""
import subprocess

from ports import free_ports

from .kafka import Kafka, format_data

USER, PASSWORD = 'relay', 'right-5Kd8vQ2x'
PROTOCOLS = {'SASL': 'SASL_SSL', 'MUTUAL': 'SSL'}
LOGIN = 'org.apache.kafka.common.security.'


def openssl(*args):
    done = subprocess.run(['openssl', *map(str, args)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


class Authority:
    """Signs certificates; `cert` is what its friends trust."""

    def __init__(self, dir_, name):
        self.dir, self.name = dir_, name
        self.cert, self.key = dir_ / f'{name}.crt', dir_ / f'{name}.key'
        openssl('req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', 2,
                '-subj', f'/CN={name}', '-keyout', self.key, '-out', self.cert)

    def issue(self, name, secret=None):
        """(certificate, key) files; the key is encrypted with the secret."""
        cert, key, request = (self.dir / f'{name}.{e}' for e in ('crt', 'key', 'csr'))
        openssl('req', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-subj', f'/CN={name}',
                '-keyout', key, '-out', request, *(['-passout', f'pass:{secret}'] if secret else ['-nodes']))
        extensions = self.dir / f'{name}.ext'
        extensions.write_text('subjectAltName=IP:127.0.0.1\n')
        openssl('x509', '-req', '-in', request, '-CA', self.cert, '-CAkey', self.key, '-CAcreateserial',
                '-days', 2, '-extfile', extensions, '-out', cert)
        return cert, key


class SecureKafka(Kafka):
    def make_data(self):
        self.ca = Authority(self.dir, 'authority')
        cert, key = self.ca.issue('broker')
        self.keystore = self.dir / 'broker.pem'
        self.keystore.write_text(key.read_text() + cert.read_text())
        self.configure(1, 2)
        format_data(self.home, self.conf, '--add-scram', f'SCRAM-SHA-256=[name={USER},password={PASSWORD}]')

    def more_settings(self):
        self.ports = dict(zip(PROTOCOLS, free_ports(len(PROTOCOLS))))
        places = ''.join(f',{n}://127.0.0.1:{p}' for n, p in self.ports.items())
        plain = f'PLAINTEXT://127.0.0.1:{self.port}{places}'
        sasl = 'listener.name.sasl.'
        out = {
            'listeners': f'{plain},CONTROLLER://127.0.0.1:{self.controller_port}',
            'advertised.listeners': plain,
            'listener.security.protocol.map': 'CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,' + ','.join(
                f'{n}:{p}' for n, p in PROTOCOLS.items()),
            f'{sasl}sasl.enabled.mechanisms': 'PLAIN,SCRAM-SHA-256',
            f'{sasl}plain.sasl.jaas.config': f'{LOGIN}plain.PlainLoginModule required '
                                             f'user_{USER}="{PASSWORD}";',
            f'{sasl}scram-sha-256.sasl.jaas.config': f'{LOGIN}scram.ScramLoginModule required;',
            'listener.name.mutual.ssl.client.auth': 'required',
            'ssl.keystore.type': 'PEM', 'ssl.keystore.location': self.keystore,
            'ssl.truststore.type': 'PEM', 'ssl.truststore.location': self.ca.cert,
        }
        return {**out, **self.settings}

    def at(self, listener):
        return f'127.0.0.1:{self.ports[listener]}'

    def change_password(self, old, new):
        """Of PLAIN, from the next start on."""
        text = self.conf.read_text()
        assert f'="{old}"' in text
        self.conf.write_text(text.replace(f'="{old}"', f'="{new}"'))
