import type { EmbeddedS3 } from '../../local/aws/s3/s3.ts';

interface OpenedObject {
  readonly body: Buffer;
  readonly mediaType: string | undefined;
  readonly etag: string;
  readonly versionId: string | undefined;
  /** The id of the flow that its metadata name, encoded. */
  readonly flow: string | undefined;
  readonly lastModified: number;
}

export interface MultipartUpload {
  readonly bucket: string;
  readonly key: string;
  readonly uploadId: string;
}

/** Reads and writes the embedded S3 directly, without network, faults or delays, on behalf of the test. */
export class Inspector {
  readonly #s3: EmbeddedS3;

  constructor(s3: EmbeddedS3) {
    this.#s3 = s3;
  }

  async list(bucket: string, prefix = ''): Promise<{ readonly key: string; readonly etag: string }[]> {
    const objects = [];
    let token: string | undefined;
    do {
      const query = new URLSearchParams({ 'list-type': '2', 'encoding-type': 'url', prefix });
      if (token !== undefined) query.set('continuation-token', token);
      const { body } = await this.#ask('GET', `/${bucket}?${query}`);
      const xml = body.toString();
      for (const [, contents = ''] of xml.matchAll(/<Contents>(.*?)<\/Contents>/gs)) {
        objects.push({
          key: decodeURIComponent(textOf(contents, 'Key').replaceAll('+', ' ')),
          etag: textOf(contents, 'ETag').replaceAll('&quot;', '"'),
        });
      }
      token = textOf(xml, 'IsTruncated') === 'true' ? textOf(xml, 'NextContinuationToken') : undefined;
    } while (token !== undefined);
    return objects;
  }

  /** Multipart uploads that were neither completed nor aborted. */
  async multipartUploads(bucket: string): Promise<{ readonly key: string; readonly uploadId: string }[]> {
    const { body } = await this.#ask('GET', `/${bucket}?uploads`);
    return [...body.toString().matchAll(/<Upload>(.*?)<\/Upload>/gs)].map(([, upload = '']) => ({
      key: textOf(upload, 'Key'),
      uploadId: textOf(upload, 'UploadId'),
    }));
  }

  /** The current object; undefined if there is none. */
  async open(bucket: string, key: string): Promise<OpenedObject | undefined> {
    const { status, headers, body } = await this.#ask('GET', `/${bucket}/${encoded(key)}`);
    if (status === 404) return undefined;
    if (status !== 200) throw new Error(`S3 answered ${status} for ${bucket}/${key}`);
    return {
      body,
      mediaType: headers['content-type'],
      etag: (headers.etag ?? '').replaceAll('"', ''),
      versionId: headers['x-amz-version-id'],
      flow: headers['x-amz-meta-flowdrop-flow'],
      lastModified: Date.parse(headers['last-modified'] ?? ''),
    };
  }

  async json<T>(bucket: string, key: string): Promise<T> {
    const opened = await this.open(bucket, key);
    if (opened === undefined) throw new Error(`There is no ${bucket}/${key}`);
    return JSON.parse(opened.body.toString()) as T;
  }

  async put(bucket: string, key: string, body: Buffer, mediaType: string): Promise<void> {
    const headers = { 'content-length': String(body.byteLength), 'content-type': mediaType };
    const { status } = await this.#ask('PUT', `/${bucket}/${encoded(key)}`, headers, body);
    if (status !== 200) throw new Error(`S3 answered ${status} to a PUT of ${bucket}/${key}`);
  }

  /** Begins a multipart upload. Its object bears the date of now. */
  async beginMultipart(bucket: string, key: string, mediaType: string): Promise<MultipartUpload> {
    const { body } = await this.#ask('POST', `/${bucket}/${encoded(key)}?uploads`, { 'content-type': mediaType });
    return { bucket, key, uploadId: textOf(body.toString(), 'UploadId') };
  }

  /** Puts the only part of a multipart upload, and completes it. */
  async completeMultipart({ bucket, key, uploadId }: MultipartUpload, content: Buffer): Promise<void> {
    const path = `/${bucket}/${encoded(key)}?uploadId=${encodeURIComponent(uploadId)}`;
    const length = (body: Buffer) => ({ 'content-length': String(body.byteLength) });
    const part = await this.#ask('PUT', `${path}&partNumber=1`, length(content), content);
    const { etag } = part.headers;
    const list = Buffer.from(
      `<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>${etag}</ETag></Part></CompleteMultipartUpload>`,
    );
    const { status } = await this.#ask('POST', path, length(list), list);
    if (status !== 200) throw new Error(`S3 answered ${status} to the end of a multipart upload of ${bucket}/${key}`);
  }

  /** The tags of a version, as `name=value`. Default: of the current one. */
  async tags(bucket: string, key: string, versionId?: string): Promise<readonly string[]> {
    const { body } = await this.#ask(
      'GET',
      `/${bucket}/${encoded(key)}?tagging${versionId === undefined ? '' : `&versionId=${versionId}`}`,
    );
    const tags = [...body.toString().matchAll(/<Tag>(.*?)<\/Tag>/gs)];
    return tags.map(([, tag = '']) => `${textOf(tag, 'Key')}=${textOf(tag, 'Value')}`);
  }

  async delete(bucket: string, key: string): Promise<void> {
    await this.#ask('DELETE', `/${bucket}/${encoded(key)}`);
  }

  async #ask(
    method: string,
    url: string,
    headers: Record<string, string> = {},
    body: Buffer = Buffer.alloc(0),
  ): Promise<{ status: number; headers: Readonly<Record<string, string>>; body: Buffer }> {
    const answer = await this.#s3.handle({
      method,
      url,
      headers: { host: 'localhost', ...headers },
      body: (async function* () {
        yield body;
      })(),
    });
    const chunks: Uint8Array[] = [];
    if (answer.body instanceof Uint8Array) chunks.push(answer.body);
    else for await (const chunk of answer.body) chunks.push(chunk);
    return { status: answer.status, headers: answer.headers, body: Buffer.concat(chunks) };
  }
}

const encoded = (key: string): string => key.split('/').map(encodeURIComponent).join('/');

const textOf = (xml: string, name: string): string => new RegExp(`<${name}>(.*?)</${name}>`, 's').exec(xml)?.[1] ?? '';
