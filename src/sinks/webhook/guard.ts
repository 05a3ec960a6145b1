/**
 * Where webhooks may go: the same rules when a URL is given, when it is tested, and for each connection that is made.
 *
 *   checkUrl      what the text alone says: scheme, credentials, port, the host as it was parsed
 *   checkTarget   also every address that its name has now
 *   connect       all of it for each connection: the name is looked up once, every answer is judged, one of those very addresses is dialled, and
 *                 the address at the other end is judged too
 *
 * A name with one refused address is refused. Names that are known inside a network only lead nowhere but into the allow-list. Redirects are
 * never followed and no proxy is asked: both would choose another target after the rules were applied.
 */
import { type LookupAddress, lookup } from 'node:dns'
import { isIP, type Socket } from 'node:net'
import type { buildConnector } from 'undici'
import { BusbarError, shown } from '../../errors.ts'
import { Addresses } from './address.ts'
import { type Dial, dialInTurn, dialSocket } from './dial.ts'
import { HungBefore, Lookups, type Resolve } from './lookups.ts'
import { isUsualPort } from './ports.ts'
import { NotInTime } from './problem.ts'

export type { Resolve }

export interface GuardOptions {
  /** Networks (CIDR) that may be reached although they are not public. Default: none. */
  allow?: readonly string[]
  /** http too, not only https. Default false. */
  allowHttp?: boolean
  /** All ports that may be used, in place of the usual ones (ports.ts). */
  ports?: readonly number[]
  resolve?: Resolve
  dial?: Dial
}

export interface ConnectOptions extends Pick<buildConnector.Options, 'protocol' | 'hostname' | 'port'> {
  /** For all of it, looking up the name included. Default 2 s. */
  timeoutMs?: number
}

interface Target {
  protocol: string
  /** A name in lower case, or an IP address without brackets. */
  host: string
  port: number
}

interface Refusal {
  problem: string
  remedy: string
}

const longestUrl = 2_048
const connectMs = 2_000
/** Names that mean something inside a network only; so does one without a dot. */
const insideName = /(?:^|\.)(?:localhost|localdomain|local|internal|home\.arpa)$|^[^.]+$/
// The URL parser drops these or takes them for something else: what a person reads is not what it says.
const misleading = /[\\\p{Cc}\p{Z}]/u

export class Guard {
  /** What is open on purpose: whoever starts says so. */
  readonly allow: readonly string[]
  readonly allowHttp: boolean
  readonly #addresses: Addresses
  readonly #isPort: (port: number) => boolean
  readonly #lookups: Lookups
  readonly #dial: Dial

  constructor(options: GuardOptions = {}) {
    const { allow = [], allowHttp = false, ports, resolve = lookup, dial = dialSocket } = options
    this.#addresses = new Addresses(allow)
    this.allow = [...allow]
    this.allowHttp = allowHttp
    this.#isPort = ports ? (port) => ports.includes(port) : isUsualPort
    this.#lookups = new Lookups(resolve)
    this.#dial = dial
  }

  /** WEBHOOK_URL_REFUSED says why, and what to do. */
  checkUrl(url: unknown): URL {
    const parsed = parse(url)
    if (!(parsed instanceof URL)) throw refused(url, parsed)
    const refusal = credentialsIn(parsed) ?? this.#refusal(targetOf(parsed))
    if (refusal) throw refused(parsed.origin, refusal)
    return parsed
  }

  /** The same, and WEBHOOK_HOST_UNRESOLVED when its name has no address now. */
  async checkTarget(url: unknown): Promise<URL> {
    const checked = this.checkUrl(url)
    await this.#accepted(targetOf(checked), AbortSignal.timeout(connectMs))
    return checked
  }

  /** A connector for undici. What it answers calls it off: nothing more is dialled, and a socket under way is cut. */
  readonly connect = (options: ConnectOptions, callback: buildConnector.Callback): (() => void) => {
    const { timeoutMs = connectMs } = options
    const stop = new AbortController()
    const timer = setTimeout(() => stop.abort(new NotInTime('connection', timeoutMs)), timeoutMs)
    this.#open(targetOf(options), stop.signal)
      .finally(() => clearTimeout(timer))
      .then(
        (socket) => callback(null, socket),
        (error) => callback(error, null),
      )
    return () => stop.abort(new Error('called off'))
  }

  async #open(target: Target, signal: AbortSignal): Promise<Socket> {
    const refusal = this.#refusal(target)
    if (refusal) throw refused(originOf(target), refusal)
    const addresses = await this.#accepted(target, signal)
    const { protocol, host, port } = target
    // The name stays the name for TLS, whichever of its addresses is dialled.
    const to = { protocol: protocol as 'http:' | 'https:', port, servername: isIP(host) === 0 ? host : undefined }
    return await dialInTurn(addresses, to, {
      dial: this.#dial,
      judge: (address) => this.#judge(target, address),
      signal,
    })
  }

  #refusal({ protocol, host, port }: Target): Refusal | undefined {
    if (protocol !== 'https:' && protocol !== 'http:')
      return { problem: `its scheme is ${shown(protocol.slice(0, -1))}`, remedy: 'Use https.' }
    if (protocol === 'http:' && !this.allowHttp)
      return { problem: 'it is not https', remedy: 'Use https, or allow http where this server is started.' }
    if (!this.#isPort(port))
      return {
        problem: `port ${port} is not for webhooks`,
        remedy: 'Use 443, or a port above 1023 of no other service.',
      }
    return isIP(host) === 0 ? this.#nameRefusal(host) : this.#addressRefusal(host, host)
  }

  #nameRefusal(host: string): Refusal | undefined {
    if (host.endsWith('.')) return { problem: `${shown(host)} ends with a dot`, remedy: 'Leave the dot out.' }
    return insideName.test(host) && this.allow.length === 0 ? insideRefusal(host) : undefined
  }

  #addressRefusal(host: string, address: string): Refusal | undefined {
    const verdict = this.#addresses.judge(address)
    if (verdict === 'allowed') return undefined
    if (isIP(host) === 0 && insideName.test(host)) return insideRefusal(host)
    if (verdict === 'public') return undefined
    const { kind } = verdict
    // Not which address: whoever asks would learn what names inside this network lead to.
    const problem = host === address ? `${address} is ${kind}` : `${shown(host)} leads to ${kind}`
    return { problem, remedy: 'Use a public address, or allow its network where this server is started.' }
  }

  #judge(target: Target, address: string): BusbarError | undefined {
    const refusal = this.#addressRefusal(target.host, address)
    return refusal && refused(originOf(target), refusal)
  }

  /** All addresses of the host; one that is refused refuses them all. */
  async #accepted(target: Target, signal: AbortSignal): Promise<LookupAddress[]> {
    const family = isIP(target.host)
    if (family !== 0) return [{ address: target.host, family }]
    const addresses = await this.#lookup(target.host, signal)
    for (const { address } of addresses) {
      const error = this.#judge(target, address)
      if (error) throw error
    }
    return addresses
  }

  async #lookup(host: string, signal: AbortSignal): Promise<LookupAddress[]> {
    try {
      const addresses = await this.#lookups.of(host, signal)
      if (addresses.length > 0) return addresses
    } catch (error) {
      const isLate = signal.aborted || error instanceof HungBefore
      const problem = isLate ? 'no answer in time' : lookupProblem(error)
      throw BusbarError.of('WEBHOOK_HOST_UNRESOLVED', { host, problem }, error)
    }
    throw BusbarError.of('WEBHOOK_HOST_UNRESOLVED', { host, problem: 'it has no address' })
  }
}

function parse(url: unknown): URL | Refusal {
  const remedy = 'Give an absolute URL such as https://example.com/hook.'
  if (typeof url !== 'string') return { problem: 'it is not a text', remedy }
  if (url.length > longestUrl) return { problem: `it is longer than ${longestUrl} characters`, remedy }
  if (misleading.test(url)) return { problem: 'it has a space, a backslash or a control character', remedy }
  try {
    return new URL(url)
  } catch {
    return { problem: 'it is not a URL', remedy }
  }
}

function credentialsIn({ username, password }: URL): Refusal | undefined {
  if (username === '' && password === '') return undefined
  return { problem: 'it has a user name or a password', remedy: 'Give them as a header of the subscription.' }
}

const insideRefusal = (host: string): Refusal => ({
  problem: `${shown(host)} is a name inside a network`,
  remedy: 'Use a public name, or allow its network where this server is started.',
})

function targetOf({ protocol, hostname, port }: Pick<URL, 'protocol' | 'hostname' | 'port'>): Target {
  const usual = protocol === 'https:' ? 443 : 80
  return { protocol, host: hostname.replace(/^\[|\]$/g, ''), port: port ? Number(port) : usual }
}

const originOf = ({ protocol, host, port }: Target): string =>
  `${protocol}//${isIP(host) === 6 ? `[${host}]` : host}:${port}`

/** Without what may be secret in a URL: credentials, path, query. */
function refused(url: unknown, refusal: Refusal): BusbarError {
  return BusbarError.of('WEBHOOK_URL_REFUSED', { url: shown(typeof url === 'string' ? bare(url) : url), ...refusal })
}

function bare(url: string): string {
  const start = url.slice(0, longestUrl)
  const origin = /^[^/?#\\]*(?:[/\\]{2}[^/?#\\]*)?/.exec(start)![0]
  return origin.replace(/[^/\\]*@/, '…@')
}

function lookupProblem(error: unknown): string {
  const code = (error as { code?: unknown } | undefined)?.code
  if (code === 'ENOTFOUND') return 'there is no such name'
  return code === 'EAI_AGAIN' ? 'the name server does not answer' : 'the look-up failed'
}
