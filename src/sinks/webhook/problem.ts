/** Why a request had no answer, in words that stay the same: they are stored, shown and counted. Never a stack, never the receiver's text. */
import { BusbarError } from '../../errors.ts'

const seconds = (ms: number): string => `${ms / 1_000} s`

export class NotInTime extends Error {
  constructor(what: 'connection' | 'free connection' | 'answer', ms: number) {
    super(`no ${what} within ${seconds(ms)}`)
  }
}

/** By the code that Node, OpenSSL or undici gives. */
const problems: Readonly<Record<string, string>> = {
  ECONNREFUSED: 'connection refused',
  ECONNRESET: 'connection reset',
  EPIPE: 'connection reset',
  ECONNABORTED: 'connection reset',
  UND_ERR_SOCKET: 'connection closed without an answer',
  ETIMEDOUT: 'connection timed out',
  EHOSTUNREACH: 'host unreachable',
  EHOSTDOWN: 'host unreachable',
  ENETUNREACH: 'network unreachable',
  EADDRNOTAVAIL: 'network unreachable',
  EMFILE: 'too many open files in this process',
  HTTPParserError: 'answer is not HTTP',
  UND_ERR_RES_CONTENT_LENGTH_MISMATCH: 'answer is not HTTP',
  UND_ERR_HEADERS_OVERFLOW: 'headers of the answer too large',
  UND_ERR_INVALID_ARG: 'request cannot be sent: its path or a header is not valid',
  DEPTH_ZERO_SELF_SIGNED_CERT: 'TLS: self-signed certificate',
  SELF_SIGNED_CERT_IN_CHAIN: 'TLS: self-signed certificate in the chain',
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: 'TLS: certificate of an unknown authority',
  UNABLE_TO_GET_ISSUER_CERT: 'TLS: certificate of an unknown authority',
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: 'TLS: certificate of an unknown authority',
  CERT_HAS_EXPIRED: 'TLS: certificate has expired',
  CERT_NOT_YET_VALID: 'TLS: certificate is not valid yet',
  CERT_REVOKED: 'TLS: certificate was revoked',
  ERR_TLS_CERT_ALTNAME_INVALID: 'TLS: certificate is for another name',
}

export function problemOf(error: unknown): string {
  if (error instanceof NotInTime) return error.message
  if (error instanceof BusbarError) return ownProblem(error)
  const code = codeOf(error)
  if (Object.hasOwn(problems, code)) return problems[code]!
  if (/^(?:ERR_SSL|ERR_TLS|EPROTO|CERT_)/.test(code)) return 'TLS: no agreement with the receiver'
  return code === '' ? 'connection failed' : `connection failed: ${code}`
}

function ownProblem({ code, details }: BusbarError): string {
  if (code === 'WEBHOOK_URL_REFUSED') return `refused: ${details.problem}`
  if (code === 'WEBHOOK_HOST_UNRESOLVED') return `name not resolved: ${details.problem}`
  return code
}

/** undici's parser gives its name alone. */
function codeOf(error: unknown): string {
  const { code = undefined, name = undefined } = (error ?? {}) as { code?: unknown; name?: unknown }
  if (name === 'HTTPParserError') return name
  return typeof code === 'string' && /^\w{1,64}$/.test(code) ? code : ''
}
