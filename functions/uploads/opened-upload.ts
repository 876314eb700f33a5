import type { JsonObject } from '../base/json.ts';
import type { InputAddress, InputSource } from '../flow-service/types.ts';
import type { Upload } from './upload.ts';

/** An input of a flow. Its bytes are not read yet. */
export interface OpenedInput {
  /** Undefined if the input is a text that a job file holds. */
  readonly key: string | undefined;
  /** How it is sent. Default: as the route says. */
  readonly as?: 'text' | undefined;
  readonly mediaType: string;
  /** How the object is compressed. Undefined if it is not, or if that is not known yet. */
  readonly coding?: string | undefined;
  readonly source: InputSource;
  /** Undefined if the input is a text of a job, or has no version id: its key may lead to another object at any time. */
  readonly address?: InputAddress | undefined;
  /** What the service is told about it, in `additional`. */
  readonly additional: JsonObject;
}

/** An opened upload: its facts, and its inputs. */
export interface OpenedUpload {
  readonly upload: Upload;
  /** True if the object is in an archive storage class: its facts are known, but its bytes cannot be read. */
  readonly isArchived: boolean;
  /** User metadata by names in lower case. */
  readonly metadata: Readonly<Record<string, string>>;
  /** The object itself. In a later stage of a chain: the assets that the upload takes. In a job: its inputs. */
  readonly inputs: readonly OpenedInput[];
  /** Closes every stream that was not read to its end. */
  discard(): void;
}
