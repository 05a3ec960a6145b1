/**
 * A trie over the segments of event types: who wants (tenant, type), without asking everyone.
 *
 * One root for wishes of any tenant and one per named tenant. A node exists only while a wish stands on it or below it,
 * so adding and removing for ever leaves nothing behind. A look visits at most the nodes that stand, and each once.
 */

/** The topic of Busbar's own events; only a pattern that spells it out reaches them. */
export const ownTopic = 'busbar'

export const oneSegment = '*'
export const allSegments = '>'

interface Node<V> {
  literal: Map<string, Node<V>>
  star: Node<V> | undefined
  /** Wishes that end at this node. */
  here: Set<V>
  /** Wishes with `>` after this node: one or more further segments. */
  below: Set<V>
}

export interface SegmentTrie<V> {
  /** `tenant` undefined means every tenant. */
  add(tenant: string | undefined, segments: readonly string[], value: V): void
  remove(tenant: string | undefined, segments: readonly string[], value: V): void
  collect(tenant: string, segments: readonly string[], into: Set<V>): void
  isEmpty(): boolean
}

export function createSegmentTrie<V>(): SegmentTrie<V> {
  const anyTenant = createNode<V>()
  const tenants = new Map<string, Node<V>>()

  function rootFor(tenant: string | undefined): Node<V> {
    if (tenant === undefined) return anyTenant
    let root = tenants.get(tenant)
    if (!root) {
      root = createNode()
      tenants.set(tenant, root)
    }
    return root
  }

  return {
    add(tenant, segments, value) {
      addBelow(rootFor(tenant), segments, value)
    },
    remove(tenant, segments, value) {
      const root = tenant === undefined ? anyTenant : tenants.get(tenant)
      if (!root) return
      const emptied = removeBelow(root, segments, 0, value)
      if (emptied && tenant !== undefined) tenants.delete(tenant)
    },
    collect(tenant, segments, into) {
      collectFromRoot(anyTenant, segments, into)
      const own = tenants.get(tenant)
      if (own) collectFromRoot(own, segments, into)
    },
    isEmpty: () => tenants.size === 0 && isEmptyNode(anyTenant),
  }
}

function createNode<V>(): Node<V> {
  return { literal: new Map(), star: undefined, here: new Set(), below: new Set() }
}

function isEmptyNode(node: Node<unknown>): boolean {
  return node.literal.size === 0 && node.star === undefined && node.here.size === 0 && node.below.size === 0
}

function addBelow<V>(root: Node<V>, segments: readonly string[], value: V): void {
  let node = root
  for (const segment of segments) {
    if (segment === allSegments) {
      node.below.add(value)
      return
    }
    node = childFor(node, segment)
  }
  node.here.add(value)
}

function childFor<V>(node: Node<V>, segment: string): Node<V> {
  const child = segment === oneSegment ? node.star : node.literal.get(segment)
  if (child) return child
  const made = createNode<V>()
  if (segment === oneSegment) node.star = made
  else node.literal.set(segment, made)
  return made
}

/** Answers whether the node has become empty, so that its parent drops it. */
function removeBelow<V>(node: Node<V>, segments: readonly string[], depth: number, value: V): boolean {
  const segment = segments[depth]
  if (segment === undefined) node.here.delete(value)
  else if (segment === allSegments) node.below.delete(value)
  else if (segment === oneSegment) {
    if (node.star && removeBelow(node.star, segments, depth + 1, value)) node.star = undefined
  } else {
    const child = node.literal.get(segment)
    if (child && removeBelow(child, segments, depth + 1, value)) node.literal.delete(segment)
  }
  return isEmptyNode(node)
}

function collectFromRoot<V>(root: Node<V>, segments: readonly string[], into: Set<V>): void {
  if (segments[0] !== ownTopic) {
    collectBelow(root, segments, 0, into)
    return
  }
  const own = root.literal.get(ownTopic)
  if (own) collectBelow(own, segments, 1, into)
}

function collectBelow<V>(node: Node<V>, segments: readonly string[], depth: number, into: Set<V>): void {
  const segment = segments[depth]
  if (segment === undefined) {
    for (const value of node.here) into.add(value)
    return
  }
  for (const value of node.below) into.add(value)
  const child = node.literal.get(segment)
  if (child) collectBelow(child, segments, depth + 1, into)
  if (node.star) collectBelow(node.star, segments, depth + 1, into)
}
