/**
 * Signatures of webhooks, as Standard Webhooks has them: what the sink sends, and what a receiver checks.
 *
 *   webhook-id          the batch: the same on every attempt
 *   webhook-timestamp   of the attempt, in seconds
 *   webhook-signature   one per secret, separated by spaces: `v1,<HMAC-SHA256>` or `v1a,<ed25519>`, in base64
 *
 * Signed is `<id>.<timestamp>.<body>`, the body's exact bytes. A secret says by its prefix what it is: `whsec_` is shared and both signs
 * and verifies, `whsk_` signs with ed25519, and `whpk_`, which may be public, verifies what it has signed. No message ever holds one.
 */
import {
  createHmac,
  createPrivateKey,
  createPublicKey,
  createSecretKey,
  type KeyObject,
  sign,
  timingSafeEqual,
  verify as verifySignature,
} from 'node:crypto'
import { BusbarError, shown } from './errors.ts'

export const signatureHeaders = {
  id: 'webhook-id',
  timestamp: 'webhook-timestamp',
  signature: 'webhook-signature',
} as const

/** As Standard Webhooks suggests. */
export const defaultToleranceMs = 300_000

type Prefix = 'whsec_' | 'whsk_' | 'whpk_'

interface Secret {
  prefix: Prefix
  bytes: Buffer
}

const secretBytes: Record<Prefix, (bytes: number) => boolean> = {
  whsec_: (bytes) => bytes >= 24 && bytes <= 64,
  // A seed; some write the public key behind it.
  whsk_: (bytes) => bytes === 32 || bytes === 64,
  whpk_: (bytes) => bytes === 32,
}

const wanted = {
  sign: 'must be "whsec_" and base64 of 24 to 64 random bytes, or an ed25519 key, "whsk_" and base64 of its 32 bytes',
  verify: 'must be "whsec_" and base64 of 24 to 64 bytes, or an ed25519 public key, "whpk_" and base64 of its 32 bytes',
}

/** A shared secret, or the private key of a new ed25519 pair. */
export function newSecret(randomBytes: (n: number) => Buffer, prefix: 'whsec_' | 'whsk_' = 'whsec_'): string {
  return prefix + randomBytes(32).toString('base64')
}

/** PARAMETER_INVALID, which says what to give, unless it is a secret of that use. */
export function checkSecret(text: unknown, use: 'sign' | 'verify' = 'sign'): string {
  secretFor(use, text)
  return text as string
}

function secretFor(use: 'sign' | 'verify', text: unknown): Secret {
  const secret = typeof text === 'string' ? readSecret(text) : undefined
  const other: Prefix = use === 'sign' ? 'whpk_' : 'whsk_'
  if (secret && secret.prefix !== other) return secret
  throw BusbarError.of('PARAMETER_INVALID', { name: 'secret', problem: `${wanted[use]}; ${givenSecret(text, secret)}` })
}

function givenSecret(text: unknown, secret: Secret | undefined): string {
  if (secret)
    return secret.prefix === 'whpk_' ? 'this is a public key' : 'this is a private key, which only the sender has'
  if (typeof text !== 'string') return `got ${text === undefined || text === null ? shown(text) : `a ${typeof text}`}`
  return `got another text of ${text.length} characters`
}

/** What receivers are given to verify what this key has signed. */
export function publicKeyOf(signingKey: string): string {
  const secret = readSecret(signingKey)
  if (secret?.prefix !== 'whsk_') {
    const problem = `must be an ed25519 key, "whsk_" and base64 of its 32 bytes; ${givenSecret(signingKey, undefined)}`
    throw BusbarError.of('PARAMETER_INVALID', { name: 'signingKey', problem })
  }
  const { x } = createPublicKey(privateKey(secret.bytes)).export({ format: 'jwk' })
  return `whpk_${Buffer.from(x!, 'base64url').toString('base64')}`
}

/** Undefined for any other text. Only base64 that is written in the one way that every library reads. */
function readSecret(text: string): Secret | undefined {
  const [, prefix, encoded] = /^(whsec_|whsk_|whpk_)([A-Za-z0-9+/]{1,100}={0,2})$/.exec(text) ?? []
  if (prefix === undefined || encoded === undefined) return undefined
  const bytes = Buffer.from(encoded, 'base64')
  const isWhole = secretBytes[prefix as Prefix](bytes.length) && bytes.toString('base64') === encoded
  return isWhole ? { prefix: prefix as Prefix, bytes } : undefined
}

export interface Signed {
  id: string
  /** In seconds. */
  timestamp: number
  body: string | Uint8Array
}

/** Answers the value of the header: a signature by each of its secrets, in their order. */
export type Signer = (about: Signed) => string

/** Secrets are read once, for as many signatures as there will be. */
export function signerOf(secrets: readonly string[]): Signer {
  const all = secrets.map((text) => signerBy(secretFor('sign', text)))
  return (about) => all.map((signed) => signed(about)).join(' ')
}

/** The headers of a request with this body. */
export function signedHeaders(about: Signed, secrets: readonly string[]): Record<string, string> {
  return {
    [signatureHeaders.id]: about.id,
    [signatureHeaders.timestamp]: String(about.timestamp),
    [signatureHeaders.signature]: signatures(about, secrets),
  }
}

export const signatures = (about: Signed, secrets: readonly string[]): string => signerOf(secrets)(about)

function signerBy({ prefix, bytes }: Secret): Signer {
  if (prefix === 'whsec_') {
    const key = createSecretKey(bytes)
    return (about) => `v1,${hmac(key, about)}`
  }
  const key = privateKey(bytes)
  return (about) => `v1a,${sign(null, signedBytes(about), key).toString('base64')}`
}

const signedStart = ({ id, timestamp }: Signed): string => `${id}.${timestamp}.`

const signedBytes = (about: Signed): Buffer => Buffer.concat([Buffer.from(signedStart(about)), Buffer.from(about.body)])

const hmac = (key: KeyObject | Buffer, about: Signed): string =>
  createHmac('sha256', key).update(signedStart(about)).update(about.body).digest('base64')

// What an ed25519 key begins with in DER (RFC 8410): node:crypto takes none of its 32 bytes alone.
const privateStart = Buffer.from('302e020100300506032b657004220420', 'hex')
const publicStart = Buffer.from('302a300506032b6570032100', 'hex')

const privateKey = (bytes: Buffer): KeyObject =>
  createPrivateKey({ key: Buffer.concat([privateStart, bytes.subarray(0, 32)]), format: 'der', type: 'pkcs8' })

const publicKey = (bytes: Buffer): KeyObject =>
  createPublicKey({ key: Buffer.concat([publicStart, bytes]), format: 'der', type: 'spki' })

/** A request as it came: the headers' texts, undefined where one is missing. */
export interface SignedRequest {
  id: string | undefined
  timestamp: string | undefined
  signature: string | undefined
  body: string | Uint8Array
}

export interface VerifyOptions {
  /** One of them is enough: during a rotation the old one and the new one. */
  secrets: readonly string[]
  nowMs: number
  toleranceMs?: number
}

// A rotation has two; each ed25519 signature takes 50 µs to look at.
const maxSignatures = 20

/**
 * The batch's id, if one of the secrets has signed the request and its time is not further off than the tolerance. Else
 * WEBHOOK_UNSIGNED, WEBHOOK_TIMESTAMP_REFUSED or WEBHOOK_SIGNATURE_REFUSED. Texts are compared in constant time.
 */
export function verify(request: SignedRequest, options: VerifyOptions): { id: string; timestamp: number } {
  const { id, timestamp: time, signature, body } = request
  if (!id || !time || !signature) throw BusbarError.of('WEBHOOK_UNSIGNED', { missing: missingHeaders(request) })
  const timestamp = checkTimestamp(time, options)
  const candidates = signature.split(' ').slice(0, maxSignatures)
  const isSigned = options.secrets
    .map((text) => secretFor('verify', text))
    .some((secret) => isSignedBy(secret, { id, timestamp, body }, candidates))
  if (!isSigned) throw BusbarError.of('WEBHOOK_SIGNATURE_REFUSED', { signatures: candidates.length })
  return { id, timestamp }
}

function missingHeaders(request: SignedRequest): string[] {
  const names = Object.keys(signatureHeaders) as (keyof typeof signatureHeaders)[]
  return names.filter((name) => !request[name]).map((name) => signatureHeaders[name])
}

function checkTimestamp(text: string, { nowMs, toleranceMs = defaultToleranceMs }: VerifyOptions): number {
  // Written in any other way it would not be the text that was signed.
  const timestamp = /^(0|[1-9]\d{0,11})$/.test(text) ? Number(text) : Number.NaN
  const offMs = nowMs - timestamp * 1_000
  if (Math.abs(offMs) <= toleranceMs) return timestamp
  throw BusbarError.of('WEBHOOK_TIMESTAMP_REFUSED', {
    ...{ timestamp: shown(text), offSeconds: Math.round(offMs / 1_000), toleranceSeconds: toleranceMs / 1_000 },
  })
}

function isSignedBy({ prefix, bytes }: Secret, about: Signed, candidates: readonly string[]): boolean {
  const version = prefix === 'whsec_' ? 'v1,' : 'v1a,'
  const given = candidates.filter((text) => text.startsWith(version)).map((text) => text.slice(version.length))
  if (given.length === 0) return false
  if (prefix === 'whsec_') {
    const expected = Buffer.from(hmac(bytes, about))
    return given
      .map((text) => Buffer.from(text))
      .some((text) => text.length === expected.length && timingSafeEqual(text, expected))
  }
  const signed = signedBytes(about)
  const key = publicKey(bytes)
  return given.some((text) => verifySignature(null, signed, key, Buffer.from(text, 'base64')))
}
