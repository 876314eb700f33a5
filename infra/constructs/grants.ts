import { Annotations, Stack, Token, TokenComparison } from 'aws-cdk-lib';
import {
  Grant,
  type IGrantable,
  type IPrincipal,
  type IResourceWithPolicy,
  Policy,
  PolicyStatement,
  UnknownPrincipal,
} from 'aws-cdk-lib/aws-iam';
import type { IKey } from 'aws-cdk-lib/aws-kms';
import type { IBucket } from 'aws-cdk-lib/aws-s3';
import { Construct, Dependable, type IConstruct } from 'constructs';
import { ConfigurationError } from '../../functions/base/validation.ts';
import { differs } from '../warnings.ts';
import { acknowledgeWildcards } from './acknowledge.ts';
import { keyActions, ofOwner, type Permission, printed, viaService } from './permissions.ts';

/** Whose policy may allow what the policy of the grantee cannot. */
interface Granting {
  readonly what: 'bucket' | 'key';
  readonly resource: IResourceWithPolicy;
  /** Its ARN in its own policy, if that is not the one in other policies. */
  readonly resourceSelfArns?: string[];
}

/**
 * What a method of the pipeline allows one grantee. To CDK, a grant succeeds even if the role is not to be changed, or
 * the policy of an imported bucket cannot be. This one does not, and a warning at synth lists the missing statements.
 */
export class Grants {
  readonly #scope: Construct;
  readonly #method: string;
  readonly #grantee: IGrantable;
  readonly #given: Grant[] = [];
  /** Statements that this app cannot add, by whose policy should have them. */
  readonly #missing = new Map<'grantee' | Granting['what'], PolicyStatement[]>();

  constructor(scope: Construct, method: string, grantee: IGrantable) {
    this.#scope = scope;
    this.#method = method;
    this.#grantee = grantee;
  }

  /**
   * Allows actions on what has no policy of its own. So only the policy of the grantee can allow them.
   * @throws {ConfigurationError} the grantee is of another account.
   */
  add(permission: Permission): void {
    const { account } = Stack.of(this.#scope);
    const { principalAccount = account } = this.#grantee.grantPrincipal;
    if (differs(principalAccount, account)) {
      throw new ConfigurationError([
        `${this.#scope.node.path}.${this.#method}: expected a grantee of the account ${account} of the stack, got one ` +
          `of ${principalAccount}. Let it assume a role of ${account}`,
      ]);
    }
    this.#give(permission);
  }

  /** Allows actions on a bucket or its objects, as long as the expected account owns the bucket. */
  addBucket(bucket: IBucket, permission: Permission): void {
    const conditions = ofOwner(bucket, permission.conditions);
    this.#give({ ...permission, conditions }, { what: 'bucket', resource: bucket });
  }

  /** Allows the use of a key through S3. */
  addKey(key: IKey | undefined, use: 'read' | 'write'): void {
    if (key === undefined) return;
    const conditions = viaService(this.#scope, 's3');
    // The policy of a key is about this key alone.
    const granting: Granting = { what: 'key', resource: key, resourceSelfArns: ['*'] };
    this.#give({ actions: keyActions(use), resources: [key.keyArn], conditions }, granting);
  }

  /** @returns all that was granted. It is no success if a statement is missing. */
  end(): Grant {
    const none = Grant.drop(this.#grantee, this.#method);
    if (this.#missing.size === 0) return this.#given.reduce((all, each) => all.combine(each), none);
    const principal = this.#grantee.grantPrincipal;
    const id = Construct.isConstruct(principal) ? principal.node.addr : principal;
    for (const [whose, statements] of this.#missing) {
      Annotations.of(this.#scope).addWarningV2(
        `flowdrop:${this.#method}-${whose}-${id}`,
        `${this.#method}: this app cannot change the policy of the ${whose}. Add to it: ` +
          statements.map((statement) => printed(this.#scope, statement)).join(', '),
      );
    }
    return none;
  }

  /** As CDK's `Grant.addToPrincipalOrResource`, which does not tell what it could not add. */
  #give({ actions, resources, conditions, wildcardReason }: Permission, granting?: Granting): void {
    const { grantPrincipal } = this.#grantee;
    const options = { grantee: this.#grantee, actions: [...actions], resourceArns: [...resources], conditions };
    const byGrantee = Grant.addToPrincipal(options);
    this.#given.push(byGrantee);
    const changed = changedBy(byGrantee, grantPrincipal);
    if (wildcardReason !== undefined) {
      for (const each of changed) acknowledgeWildcards(each, resources, wildcardReason);
    }
    const missing = new PolicyStatement({ actions: options.actions, resources: options.resourceArns, conditions });
    const owner = granting?.resource.env.account;
    if (granting === undefined || (byGrantee.success && isSame(owner, grantPrincipal.principalAccount))) {
      if (changed.length === 0) this.#miss('grantee', missing);
      return;
    }
    const byResource = Grant.addToPrincipalOrResource({ ...options, ...granting });
    this.#given.push(byResource);
    // Statements are added once more, here and above. A policy shows each once.
    const [ofResource = missing] = byResource.resourceStatements;
    const { statementAdded: isTaken } = granting.resource.addToResourcePolicy(ofResource);
    const isOfOthers = differs(owner ?? '', grantPrincipal.principalAccount ?? owner ?? '');
    // Across accounts, both must allow it. Within one account, either is enough.
    if (!isOfOthers && (isTaken || changed.length > 0)) return;
    if (changed.length === 0) this.#miss('grantee', missing);
    if (!isTaken) this.#miss(granting.what, ofResource);
  }

  #miss(whose: 'grantee' | Granting['what'], statement: PolicyStatement): void {
    // CDK itself warns of these.
    if (this.#grantee.grantPrincipal instanceof UnknownPrincipal) return;
    this.#missing.set(whose, [...(this.#missing.get(whose) ?? []), statement]);
  }
}

/**
 * What has the policy that a grant changed, if any: an unchangeable role only says that it was changed. The grant of a
 * new role knows the policy only at synth.
 */
function changedBy(grant: Grant, principal: IPrincipal): readonly IConstruct[] {
  const hasPolicy = Construct.isConstruct(principal) && principal.node.findAll().some((each) => each instanceof Policy);
  return hasPolicy ? [principal] : Dependable.of(grant).dependencyRoots;
}

/** True if CDK takes both for one account. */
const isSame = (one = '', other = ''): boolean =>
  [TokenComparison.SAME, TokenComparison.BOTH_UNRESOLVED].includes(Token.compareStrings(one, other));
