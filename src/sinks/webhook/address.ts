/**
 * Which IP addresses a webhook may reach.
 *
 * Only what is public: everything that leads to this machine, its network, its cloud's own services or through a translator to one of
 * these is refused, and of IPv6 whatever is not given out for public use. An IPv4 address written as IPv6 is judged as what it is. The
 * allow-list (networks as CIDR, none by default) comes first: what lies in it may be reached whatever it is.
 */
import { isIP } from 'node:net'
import ipaddr from 'ipaddr.js'
import { BusbarError, shown } from '../../errors.ts'
import { isNetwork } from '../../networks.ts'

type Address = ipaddr.IPv4 | ipaddr.IPv6
type Network = [Address, number]

/** By ipaddr.js' name of the range; the others are reserved for one thing or another. */
const kinds: Readonly<Record<string, string>> = {
  unspecified: 'an unspecified address',
  loopback: 'a loopback address',
  private: 'a private address',
  uniqueLocal: 'a private address',
  linkLocal: 'a link-local address',
  carrierGradeNat: 'an address behind carrier-grade NAT',
  multicast: 'a multicast address',
  broadcast: 'a broadcast address',
  rfc6052: 'a NAT64 address',
  '6to4': 'a 6to4 address',
  teredo: 'a Teredo address',
}
const reserved = 'a reserved address'
/** Public by its number, but inside Azure it is the platform's own service. */
const platform = ipaddr.parseCIDR('168.63.129.16/32')
/** All of IPv6 that is given out for public use. */
const publicIPv6 = ipaddr.parseCIDR('2000::/3')

export class Addresses {
  readonly #allowed: readonly Network[]

  constructor(allow: readonly string[]) {
    const problems = allow.flatMap(networkProblem)
    if (problems.length > 0) throw BusbarError.of('SETTING_INVALID', { problems })
    this.#allowed = allow.map((cidr) => ipaddr.parseCIDR(cidr))
  }

  /** `allowed`: it is on the list. `kind`: what it is that must not be reached, as in "a private address". */
  judge(address: string): 'allowed' | 'public' | { kind: string } {
    const parsed = parse(address)
    if (parsed === undefined) return { kind: 'not an IP address' }
    if (this.#allowed.some((network) => isWithin(parsed, network))) return 'allowed'
    const kind = kindOf(parsed)
    return kind === undefined ? 'public' : { kind }
  }
}

/** Undefined when it is public. */
function kindOf(address: Address): string | undefined {
  const range = address.range()
  if (range !== 'unicast') return kinds[range] ?? reserved
  if (isWithin(address, platform)) return 'an address of the cloud platform'
  return address.kind() === 'ipv4' || isWithin(address, publicIPv6) ? undefined : reserved
}

/** ipaddr.js reads many notations; a resolver or a socket gives only one, so nothing else is an address here. */
function parse(address: string): Address | undefined {
  return isIP(address) === 0 || address.includes('%') ? undefined : ipaddr.process(address)
}

const isWithin = (address: Address, [network, bits]: Network): boolean =>
  address.kind() === network.kind() && address.match(network, bits)

function networkProblem(cidr: unknown): string[] {
  if (isNetwork(cidr)) return []
  return [`allow must be networks such as "127.0.0.0/8" or "::1/128"; got ${shown(cidr)}`]
}
