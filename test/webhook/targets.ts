/** Where a webhook must never go, in every notation that some part of a system takes for an address. */

/** The first and the last of each are refused, and so is what lies between. */
export const refusedIPv4: readonly (readonly [first: string, last: string])[] = [
  ['0.0.0.0', '0.255.255.255'],
  ['10.0.0.0', '10.255.255.255'],
  ['100.64.0.0', '100.127.255.255'],
  ['100.100.100.200', '100.100.100.200'],
  ['127.0.0.0', '127.255.255.255'],
  ['127.0.0.1', '127.0.0.1'],
  ['169.254.0.0', '169.254.255.255'],
  ['169.254.169.254', '169.254.169.254'],
  ['172.16.0.0', '172.31.255.255'],
  ['192.0.0.0', '192.0.0.255'],
  ['192.0.0.192', '192.0.0.192'],
  ['192.0.2.0', '192.0.2.255'],
  ['192.88.99.0', '192.88.99.255'],
  ['192.168.0.0', '192.168.255.255'],
  ['198.18.0.0', '198.19.255.255'],
  ['198.51.100.0', '198.51.100.255'],
  ['203.0.113.0', '203.0.113.255'],
  ['224.0.0.0', '239.255.255.255'],
  ['240.0.0.0', '255.255.255.254'],
  ['255.255.255.255', '255.255.255.255'],
  ['168.63.129.16', '168.63.129.16'],
]

export const refusedIPv6: readonly string[] = [
  ...['::', '::1', '::2', '::ffff:ffff', '::127.0.0.1', '::ffff:7f00:1', '::ffff:10.0.0.1', '::ffff:0:127.0.0.1'],
  ...['64:ff9b::a9fe:a9fe', '64:ff9b::808:808', '64:ff9b:1::7f00:1', '64:ff9b:1:ffff:ffff:ffff:ffff:ffff'],
  ...['100::', '100::ffff:ffff:ffff:ffff', '2001::', '2001::1', '2001:1ff:ffff::1', '2001:20::1', '2001:db8::1'],
  ...['2002:7f00:1::1', '2002:a9fe:a9fe::1', '2002:808:808::1', '3fff::1', '5f00::1', '4000::1', '8000::1', 'e000::1'],
  ...[
    'fc00::1',
    'fd00:ec2::254',
    'fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff',
    'fe80::1',
    'febf::1',
    'fec0::1',
    'feff::1',
  ],
  ...['ff00::1', 'ff02::1', 'ff0e::1', 'ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff'],
]

export const publicIPv4: readonly string[] = [
  ...[
    '1.1.1.1',
    '8.8.8.8',
    '9.255.255.255',
    '11.0.0.0',
    '100.63.255.255',
    '100.128.0.0',
    '126.255.255.255',
    '128.0.0.0',
  ],
  ...[
    '169.253.255.255',
    '169.255.0.0',
    '172.15.255.255',
    '172.32.0.0',
    '192.167.255.255',
    '192.169.0.0',
    '223.255.255.255',
  ],
]

export const publicIPv6: readonly string[] = [
  '2606:4700::1111',
  '2a00:1450:4001::200e',
  '2001:4860:4860::8888',
  '2620:fe::fe',
]

const octets = (address: string): number[] => address.split('.').map(Number)
const numberOf = (address: string): number => octets(address).reduce((sum, octet) => sum * 256 + octet, 0)
const addressOf = (number: number): string => [24, 16, 8, 0].map((shift) => (number >>> shift) & 255).join('.')

/** Both ends, and one between that depends on nothing. */
export const samples = ([first, last]: readonly [string, string]): string[] => {
  const between = Math.floor(numberOf(first) + (numberOf(last) - numberOf(first)) * 0.6180339887)
  return [...new Set([first, last, addressOf(between)])]
}

const pairs = (address: string): [high: string, low: string] => {
  const number = numberOf(address)
  return [(number >>> 16).toString(16), (number & 0xffff).toString(16)]
}
const digits = (address: string, zero: number) =>
  address.replace(/\d/g, (digit) => String.fromCodePoint(zero + Number(digit)))
const circled = (address: string) =>
  address.replace(/\d/g, (digit) => (digit === '0' ? '⓪' : String.fromCodePoint(0x245f + Number(digit))))
const each = (address: string, written: (octet: number) => string) => octets(address).map(written).join('.')

/** All of these are the same IPv4 address to a URL parser. */
export function notationsOf(address: string): string[] {
  const number = numberOf(address)
  const [a, b, c, d] = octets(address) as [number, number, number, number]
  const [high, low] = pairs(address)
  return [
    ...[
      address,
      `${address}.`,
      String(number),
      `0x${number.toString(16)}`,
      `0X${number.toString(16).toUpperCase()}`,
      `0${number.toString(8)}`,
    ],
    ...[each(address, (octet) => `0x${octet.toString(16)}`), each(address, (octet) => `0${octet.toString(8)}`)],
    ...[
      each(address, (octet) => `0x000000${octet.toString(16)}`),
      each(address, (octet) => `00000${octet.toString(8)}`),
    ],
    ...[`${a}.${number % 2 ** 24}`, `${a}.${b}.${number % 2 ** 16}`, `0x${a.toString(16)}.${number % 2 ** 24}`],
    ...[`${a}.0x${b.toString(16)}.0${c.toString(8)}.${d}`, `0${a.toString(8)}.${b}.${(c * 256 + d).toString()}`],
    ...[digits(address, 0xff10), circled(address), address.replaceAll('.', '。'), address.replaceAll('.', '．')],
    ...[digits(address, 0x1d7ce), address.replace(/\d/g, (digit) => `%3${digit}`), address.replaceAll('.', '%2e')],
    ...[`[::ffff:${address}]`, `[::ffff:${high}:${low}]`, `[0:0:0:0:0:ffff:${high}:${low}]`, `[::FFFF:${address}]`],
  ]
}

/** IPv6 addresses that some network carries to this IPv4 address. */
export function carriersOf(address: string): string[] {
  const [high, low] = pairs(address)
  return [
    ...[
      `[::${address}]`,
      `[::${high}:${low}]`,
      `[::ffff:0:${address}]`,
      `[64:ff9b::${address}]`,
      `[64:ff9b::${high}:${low}]`,
    ],
    ...[`[64:ff9b:1::${address}]`, `[2002:${high}:${low}::]`, `[2002:${high}:${low}::1]`, `[2001:0:${high}:${low}::1]`],
  ]
}

/** URLs that a person, or another parser, reads as something else than they are. */
export function disguisesOf(host: string): string[] {
  return [
    ...[
      `https://example.com@${host}/`,
      `https://user:secret@${host}/`,
      `https://example.com:443@${host}:443/`,
      `https://@${host}/`,
    ],
    ...[
      `https://${host}#@example.com/`,
      `https://${host}?@example.com/`,
      `https://${host}/@example.com`,
      `https://${host}\\@example.com/`,
    ],
    ...[
      `https:\\\\${host}\\hook`,
      `https:${host}`,
      `https:/${host}`,
      `https:////${host}/`,
      `\\\\${host}/`,
      `//${host}/`,
    ],
    ...[
      `https://\t${host}/`,
      `ht\ntps://${host}/`,
      `https://${host}\r\n/`,
      `\u0000https://${host}/`,
      ` https://${host}/ `,
      `https://\u00ad${host}/`,
    ],
    ...[
      `https://${host}%00/`,
      `https://${host}%00.example.com/`,
      `https://${host}\u0000.example.com/`,
      `https://${host}%2f.example.com/`,
    ],
    ...[
      `http://${host}/`,
      `http://${host}:8080/`,
      `HTTPS://${host}:8443/`,
      `https://${host}:022/`,
      `https://${host}:6379/`,
    ],
    ...[
      `ftp://${host}/`,
      `file://${host}/etc/passwd`,
      `gopher://${host}:6379/_`,
      `ws://${host}/`,
      `data:,${host}`,
      `javascript:${host}`,
    ],
  ]
}

export const namesInside: readonly string[] = [
  ...[
    'localhost',
    'LOCALHOST',
    'localhost.',
    'ｌocalhost',
    'ⓛⓞⓒⓐⓛⓗⓞⓢⓣ',
    'loc\u00adalhost',
    'a.localhost',
    'a.b.localhost.',
    'localhost.localdomain',
  ],
  ...[
    'printer.local',
    'PRINTER.LOCAL',
    'local',
    'metadata.google.internal',
    'metadata.google.internal.',
    'internal',
    'db.internal',
  ],
  ...['router.home.arpa', 'redis', 'kubernetes', 'metadata', 'intranet'],
]
