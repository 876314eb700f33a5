import { randomSecret } from '../secrets.ts';

/** The only region here. */
export const REGION = 'us-east-1';

export interface Credentials {
  readonly accessKeyId: string;
  readonly secretAccessKey: string;
  /** If set, every request must carry it. If not, none may carry one. */
  readonly sessionToken?: string;
}

/** New credentials. Nobody can guess them. */
export function randomCredentials(): Credentials & { readonly sessionToken?: never } {
  return { accessKeyId: `LOCAL${randomSecret().slice(0, 15).toUpperCase()}`, secretAccessKey: randomSecret() };
}

/** New credentials with a session token, as those of a role are. */
export function randomRoleCredentials(): Required<Credentials> {
  return { ...randomCredentials(), sessionToken: randomSecret() };
}
