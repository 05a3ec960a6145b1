/** Files by pattern, for whoever's shell has not done it: `*`, `?`, `{a,b}`, and `**` for any number of folders. */
import { readdirSync } from 'node:fs'
import { isAbsolute, join } from 'node:path'

export const hasWildcard = (path: string): boolean => /[*?{]/.test(path)

/** Paths that fit, in order, written as the pattern is: relative to `cwd` unless it is absolute. */
export function glob(pattern: string, cwd: string): string[] {
  const root = isAbsolute(pattern) ? '/' : ''
  const found = alternatives(pattern).flatMap((one) => {
    const segments = one.split('/').filter((segment) => segment !== '' && segment !== '.')
    return descend(root, segments, cwd)
  })
  return [...new Set(found)].sort()
}

/** `a.{ts,js}` is two patterns; braces may stand in braces, the innermost are opened first. */
function alternatives(pattern: string): string[] {
  const braces = /\{([^{}]*)\}/.exec(pattern)
  if (!braces) return [pattern]
  const [before, after] = [pattern.slice(0, braces.index), pattern.slice(braces.index + braces[0].length)]
  return braces[1]!.split(',').flatMap((choice) => alternatives(before + choice + after))
}

function descend(folder: string, [segment, ...rest]: readonly string[], cwd: string): string[] {
  if (segment === undefined) return []
  if (segment === '..') return descend(join(folder, '..'), rest, cwd)
  const entries = entriesOf(folder, cwd)
  const folders = entries.filter(({ isFolder }) => isFolder)
  if (segment === '**') {
    const own = folders.filter(({ name }) => name !== 'node_modules' && !isHidden(name))
    return [...descend(folder, rest, cwd), ...own.flatMap(({ path }) => descend(path, ['**', ...rest], cwd))]
  }
  const fits = matcherOf(segment)
  if (rest.length > 0) return folders.filter(({ name }) => fits(name)).flatMap(({ path }) => descend(path, rest, cwd))
  return entries.filter(({ name, isFolder }) => !isFolder && fits(name)).map(({ path }) => path)
}

function entriesOf(folder: string, cwd: string): { name: string; path: string; isFolder: boolean }[] {
  try {
    const entries = readdirSync(join(isAbsolute(folder) ? '' : cwd, folder), { withFileTypes: true })
    return entries.map((entry) => ({
      name: entry.name,
      path: join(folder, entry.name),
      isFolder: entry.isDirectory(),
    }))
  } catch {
    // No such folder, or none that may be read: nothing there fits.
    return []
  }
}

const isHidden = (name: string): boolean => name.startsWith('.')

/** As in a shell, a wildcard does not stand for a leading dot. */
function matcherOf(segment: string): (name: string) => boolean {
  const source = segment
    .replace(/[.+^$()|[\]\\]/g, '\\$&')
    .replaceAll('*', '.*')
    .replaceAll('?', '.')
  const shape = new RegExp(`^${source}$`, 's')
  return (name) => shape.test(name) && (!isHidden(name) || isHidden(segment))
}
