import { once } from 'node:events';
import { checkServerIdentity, connect, createServer } from 'node:tls';
import { expect, it } from 'vitest';
import { selfSigned } from '../../bench/certificate.ts';
import { listening } from '../support/servers.ts';

it('the certificate of the benchmark is trusted for 127.0.0.1, and only by a client that was given it', async () => {
  const [certificate, other] = [await selfSigned(), await selfSigned()];
  const server = createServer({ key: certificate.key, cert: certificate.certificate });
  const [host, port] = (await listening(server)).split(':');
  /** What a client says that trusts only `authority`, and expects a server called `name`. */
  async function refusal(name: string, authority: string): Promise<string | undefined> {
    const socket = connect({
      host,
      port: Number(port),
      ca: authority,
      checkServerIdentity: (_, presented) => checkServerIdentity(name, presented),
    });
    try {
      await once(socket, 'secureConnect');
      return undefined;
    } catch (error) {
      return (error as NodeJS.ErrnoException).code;
    } finally {
      socket.destroy();
    }
  }
  expect(await refusal('127.0.0.1', certificate.certificate)).toBe(undefined);
  expect(await refusal('127.0.0.2', certificate.certificate)).toBe('ERR_TLS_CERT_ALTNAME_INVALID');
  expect(await refusal('127.0.0.1', other.certificate)).toMatch(
    /^(DEPTH_ZERO_SELF_SIGNED_CERT|CERT_SIGNATURE_FAILURE)$/,
  );
});
